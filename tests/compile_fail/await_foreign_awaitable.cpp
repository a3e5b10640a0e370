// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: a millrace coroutine awaits millrace awaitables only

#include <coroutine>

#include <millrace/coro/task.hpp>

millrace::task<void> f() {
#ifdef MILLRACE_MUST_FAIL
  co_await std::suspend_always();
#else
  co_await millrace::yield_now();
#endif
}
