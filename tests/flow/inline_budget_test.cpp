// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Chains of stages that are longer than the inline budget.

#include <millrace/flow/sources.hpp>

#include <utility>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

constexpr int items = 200;

task<void> count_turns(int& turns) {
  for (;;) {
    ++turns;
    co_await yield_now();
  }
}
task<int> count_items(stream<int> source) {
  int count = 0;
  while (int* const item = co_await source.next_in_place()) {
    if (*item >= 0) ++count;
  }
  co_return count;
}
/// How many turns of a loop it takes that `items` numbers pass `maps` stages, and then a filter that takes none.
int turns_of(int maps, int budget, bool rejected) {
  testing::virtual_loop loop;
  loop.set_inline_budget(budget);
  stream<int> chain = iota(items);
  for (int i = 0; i < maps; ++i) chain = std::move(chain) | map([](int x) { return x; });
  if (rejected) chain = std::move(chain) | filter([](const int&) { return false; });
  int turns = 0;
  spawned<void> watch(loop, count_turns(turns));
  CHECK(block_on(loop, count_items(std::move(chain))) == (rejected ? 0 : items));
  return turns;
}

/// An integer of few words.
struct step {
  int value;
  friend bool operator!=(step a, step b) { return a.value != b.value; }
  friend bool operator<(step a, step b) { return a.value < b.value; }
  step& operator++() {
    ++value;
    return *this;
  }
};

}  // namespace

TEST_CASE("a chain of more stages than the inline budget takes few turns for an item") {
  for (bool rejected : {false, true}) {
    CHECK(turns_of(150, 128, rejected) <= items * 2 + 150);
    CHECK(turns_of(20, 10, rejected) <= items * 3 + 20);
    CHECK(turns_of(20, 2, rejected) <= items * 11 + 20);
  }
}

TEST_CASE("a budget of one sends every hop of a chain through the queue") {
  CHECK(turns_of(20, 1, false) >= items * 21);
  CHECK(turns_of(20, 1, true) >= items * 21);
}

TEST_CASE("iota() compares by != and < alone") {
  testing::virtual_loop loop;
  auto steps = iota(step{3}, step{7}) | map([](step s) { return s.value; });
  CHECK(block_on(loop, count_items(std::move(steps))) == 4);
}
