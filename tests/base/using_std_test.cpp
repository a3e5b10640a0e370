// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A program that opens both namespaces, std before the library's headers: these compile, and names that both have are
// qualified.

#include <millrace/version.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

using namespace std;

#include <millrace/millrace.hpp>
#include <millrace/testing/virtual_loop.hpp>

using namespace millrace;
namespace mill = millrace;

#include "tests/support/catch.hpp"

namespace {

struct words {
  string text;
  origin from;
  string key;
};

task<size_t> count_of(stream<words> all) {
  size_t n = 0;
  while (optional<words> each = co_await all.next()) n += each->text.size();
  co_return n;
}

}  // namespace

TEST_CASE("a program may open std and millrace") {
  vector<words> given(3);
  for (words& each : given) each.text = "four";
  auto longer = from_range(std::move(given)) | buffer({.items = 2}) | mill::map([](words w) {
                  w.text += '!';
                  return w;
                });
  testing::virtual_loop loop;
  CHECK(block_on(loop, count_of(std::move(longer))) == 15);
  const mill::rank mine{.index = 1, .world_size = 4};
  CHECK(mine.index == 1);
  CHECK(is_same_v<decltype(mill::sample().key), string>);
  const std::array<int, 3> numbers{1, 2, 3};
  CHECK(accumulate(numbers.begin(), numbers.end(), 0) == 6);
  sort(given.begin(), given.end(), [](const words& a, const words& b) { return a.text < b.text; });
  CHECK(shape({2, 3}).elements() == 6);
  CHECK(event().is_set() == false);
}
