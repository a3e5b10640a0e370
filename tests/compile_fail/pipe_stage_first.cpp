// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: the generator comes first: write generator \| stage, not stage \| generator
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

int main() {
#ifdef MILLRACE_MUST_FAIL
  auto piped = millrace::take(2) | millrace::iota(3);
#else
  auto piped = millrace::iota(3) | millrace::take(2);
#endif
}
