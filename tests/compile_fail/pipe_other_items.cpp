// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: the function given to this stage cannot be called with the items that come from the left side of \|
#include <string>

#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

int main() {
#ifdef MILLRACE_MUST_FAIL
  auto piped = millrace::iota(3) | millrace::map([](const std::string& text) { return text.size(); });
#else
  auto piped = millrace::iota(3) | millrace::map([](int x) { return 2 * x; });
#endif
}
