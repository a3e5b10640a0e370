// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: the left side of \| is neither an async_generator nor a stage
// expect: a range is not a generator: write from_range\(std::move\(range\)\) \| stage
// errors: 2
#include <utility>
#include <vector>

#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

int main() {
  std::vector<int> numbers{1, 2, 3};
#ifdef MILLRACE_MUST_FAIL
  auto a = 3 | millrace::take(2);
  auto b = numbers | millrace::take(2);
#else
  auto b = millrace::from_range(std::move(numbers)) | millrace::take(2);
#endif
}
