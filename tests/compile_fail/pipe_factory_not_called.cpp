// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: a stage factory must be called, as in source \| untar\(\)
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

millrace::take_stage first() { return millrace::take(1); }

int main() {
#ifdef MILLRACE_MUST_FAIL
  auto piped = millrace::iota(3) | first;
#else
  auto piped = millrace::iota(3) | first();
#endif
}
