// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: the right side of \| is not a stage: it does not return an async_generator
#include <utility>

#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

int main() {
#ifdef MILLRACE_MUST_FAIL
  auto piped = millrace::iota(3) | millrace::collect<millrace::async_generator<int>>;
#else
  auto all = millrace::collect(millrace::iota(3) | millrace::take(2));
#endif
}
