// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: dropping a started task stops it

#include <millrace/coro/started.hpp>

millrace::task<void> f() { co_return; }
millrace::started<void> start(millrace::executor& ex) { return millrace::started<void>(ex, f()); }

void g(millrace::executor& ex) {
#ifdef MILLRACE_MUST_FAIL
  start(ex);
#else
  auto kept = start(ex);
#endif
}
