// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: a generator does nothing until next\(\) is awaited

#include <millrace/coro/async_generator.hpp>

millrace::async_generator<int> f() { co_yield 1; }

void g() {
#ifdef MILLRACE_MUST_FAIL
  f();
#else
  auto kept = f();
#endif
}
