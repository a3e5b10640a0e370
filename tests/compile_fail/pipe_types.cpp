// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: the right side of \| is not a stage for these items
// expect: is_stage_for<count_words, millrace::(\w+::)?async_generator<int>

// The compiler's answer names the stage and the items.

#include <string>
#include <utility>

#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

struct count_words {
  millrace::async_generator<int> operator()(millrace::async_generator<std::string> text) const;
};

int main() {
#ifdef MILLRACE_MUST_FAIL
  auto counted = millrace::iota(3) | count_words();
#else
  auto counted = millrace::iota(3) | millrace::map([](int x) { return std::to_string(x); }) | count_words();
#endif
}
