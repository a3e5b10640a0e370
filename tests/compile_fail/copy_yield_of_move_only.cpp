// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: yield_value

// A named item is copied by `co_yield x`: for a move-only type it must be given or moved, never taken silently.

#include <memory>

#include <millrace/coro/async_generator.hpp>

millrace::async_generator<std::unique_ptr<int>> f() {
  auto p = std::make_unique<int>(1);
#ifdef MILLRACE_MUST_FAIL
  co_yield p;
#else
  co_yield millrace::give(p);
#endif
}
