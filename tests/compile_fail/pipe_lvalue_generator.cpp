// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: a pipe consumes the generator on its left side: write std::move\(generator\) \| stage
#include <utility>

#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

int main() {
  auto source = millrace::iota(3);
#ifdef MILLRACE_MUST_FAIL
  auto piped = source | millrace::take(1);
#else
  auto piped = std::move(source) | millrace::take(1);
#endif
}
