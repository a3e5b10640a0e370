// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: a task does nothing until it is awaited

#include <millrace/coro/task.hpp>

millrace::task<void> f() { co_return; }

millrace::task<void> g() {
#ifdef MILLRACE_MUST_FAIL
  f();
#else
  co_await f();
#endif
  co_return;
}
