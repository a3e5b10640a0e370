// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: any_of\(\) and all_of\(\) own their tasks: write std::move\(t\)

#include <utility>

#include <millrace/sync/any_of.hpp>

millrace::task<int> one() { co_return 1; }

millrace::task<void> f() {
  auto t = one();
#ifdef MILLRACE_MUST_FAIL
  co_await millrace::any_of(t, one());
#else
  co_await millrace::any_of(std::move(t), one());
#endif
}
