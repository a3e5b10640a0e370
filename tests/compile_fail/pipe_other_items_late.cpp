// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: the function given to this stage cannot be called with the items that come from the left side of \|
#include <string>

#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

int main() {
  auto stages = millrace::map([](int x) { return std::to_string(x); }) |
#ifdef MILLRACE_MUST_FAIL
                millrace::filter([](int x) { return x > 0; });
#else
                millrace::filter([](const std::string& x) { return !x.empty(); });
#endif
  auto piped = millrace::iota(3) | stages;
}
