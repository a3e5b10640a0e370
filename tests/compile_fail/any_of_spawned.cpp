// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: keeps its result: await its end, any_of\(s\.ended\(\), \.\.\.\)

#include <millrace/coro/spawned.hpp>
#include <millrace/sync/any_of.hpp>

millrace::task<int> one() { co_return 1; }

millrace::task<void> f(millrace::spawned<int>& s) {
#ifdef MILLRACE_MUST_FAIL
  co_await millrace::any_of(s, one());
#else
  co_await millrace::any_of(s.ended(), one());
#endif
}
