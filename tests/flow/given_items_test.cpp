// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Stages that look at items where they lie in the generator before them: what they must leave there, and what not.

#include <millrace/flow/map.hpp>

#include "tests/support/catch.hpp"

#include <array>
#include <vector>

#include "tests/flow/support.hpp"

using namespace millrace;

namespace {

async_generator<int> count(int n) {
  for (int i = 0; i < n; ++i) co_yield give(i);
}
// The last four numbers, kept in the generator from item to item.
async_generator<std::array<int, 4>> window(int n) {
  std::array<int, 4> last{};
  for (int i = 1; i <= n; ++i) {
    for (std::size_t k = 0; k < 3; ++k) last[k] = last[k + 1];
    last[3] = i;
    co_yield give(last);
  }
}
// Pairs: the vector that was given is empty again.
async_generator<std::vector<int>> pairs(int n) {
  std::vector<int> pair;
  for (int i = 0; i < n; ++i) {
    pair.push_back(i);
    if (pair.size() == 2) co_yield give(pair);
  }
}

}  // namespace

namespace user {

class rope {
 public:
  explicit rope(int n) : strands(static_cast<std::size_t>(n), n) {}
  std::vector<int> strands;
};
int let_go_calls = 0;
[[maybe_unused]] void let_go(rope&) { ++let_go_calls; }

async_generator<rope> ropes() {
  for (int n = 1; n < 4; ++n) {
    rope r(n);
    co_yield give(r);
    CHECK(r.strands.empty());
  }
}

}  // namespace user

TEST_CASE("filter calls no function of the user's own that happens to have a name that it uses") {
  const std::vector<user::rope> kept =
      flow_tests::run(user::ropes() | filter([](const user::rope& r) { return r.strands.size() == 2; }));
  CHECK(kept.size() == 1);
  CHECK(user::let_go_calls == 0);
}

TEST_CASE("a function given to map may write to its item without touching the generator's variable") {
  CHECK(flow_tests::run(count(5) | map([](int&& i) { return i *= 10; })) == std::vector{0, 10, 20, 30, 40});
  auto squares = [](std::array<int, 4>&& w) {
    int sum = 0;
    for (int& x : w) sum += x *= x;
    return sum;
  };
  CHECK(flow_tests::run(window(5) | map(squares)) == std::vector{1, 5, 14, 30, 54});
}

TEST_CASE("an item that filter leaves out is moved from as one that goes on is") {
  auto wanted = [](const std::vector<int>& pair) { return pair.back() % 4 != 1; };
  const std::vector<std::vector<int>> expected{{2, 3}, {6, 7}};
  CHECK(flow_tests::run(pairs(10) | filter(wanted)) == expected);
}

TEST_CASE("an item that filter leaves out is not held while the source waits") {
  struct local {
    static async_generator<std::vector<int>> slow(bool& empty) {
      std::vector<int> item(3, 7);
      co_yield give(item);
      co_await yield_now();
      empty = item.empty();
    }
  };
  bool empty = false;
  auto nothing = [](const std::vector<int>&) -> task<bool> {
    co_await yield_now();
    co_return false;
  };
  CHECK(flow_tests::run(local::slow(empty) | filter(nothing)).empty());
  CHECK(empty);
}
