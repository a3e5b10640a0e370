// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: co_yield millrace::give\(item\)
// only-if: MILLRACE_AGGREGATE_TEMPORARIES_UNSAFE

// g++ 12 destroys a co_yielded aggregate temporary twice, silently: the promise refuses it.

#include <string>

#include <millrace/coro/async_generator.hpp>

struct record {
  std::string key;
  int value;
};

millrace::async_generator<record> records() {
#ifdef MILLRACE_MUST_FAIL
  co_yield record{"a", 1};
#else
  record r{"a", 1};
  co_yield millrace::give(r);
#endif
}
