// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: tasks \(moved: co_await std::move\(t\)\)

#include <utility>

#include <millrace/coro/task.hpp>

millrace::task<int> one() { co_return 1; }

millrace::task<int> f() {
  auto t = one();
#ifdef MILLRACE_MUST_FAIL
  co_return co_await t;
#else
  co_return co_await std::move(t);
#endif
}
