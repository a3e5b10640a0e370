// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: dropping a spawned task stops it

#include <millrace/coro/spawned.hpp>

millrace::task<void> f() { co_return; }
millrace::spawned<void> start(millrace::executor& ex) { return millrace::spawned<void>(ex, f()); }

void g(millrace::executor& ex) {
#ifdef MILLRACE_MUST_FAIL
  start(ex);
#else
  auto kept = start(ex);
#endif
}
