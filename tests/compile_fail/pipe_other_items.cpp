// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: the right side of \| is not a stage for these items: it cannot be called with the async_generator on the left
#include <string>

#include <millrace/flow/iota.hpp>
#include <millrace/flow/map.hpp>

int main() {
#ifdef MILLRACE_MUST_FAIL
  auto piped = millrace::iota(3) | millrace::map([](const std::string& text) { return text.size(); });
#else
  auto piped = millrace::iota(3) | millrace::map([](int x) { return 2 * x; });
#endif
}
