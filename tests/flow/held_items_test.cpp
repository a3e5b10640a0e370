// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What map() and filter() hold of their items while their consumer works or their source waits.

#include <millrace/flow/map.hpp>

#include <utility>

#include <millrace/coro/block_on.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/coro/support.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using millrace::test::tracked;
using millrace::test::virtual_sleep;

namespace {

/// The objects that live when the source goes on after it has waited.
async_generator<tracked> waiting_source(int& most) {
  for (int i = 0; i < 6; ++i) {
    if (i % 2 == 0) {
      co_await virtual_sleep(duration(1000));
      if (tracked::live > most) most = tracked::live;
    }
    co_yield tracked(i);
  }
}

/// The objects that live when the consumer has got an item, which lies in the source or in a map().
task<int> watch(stream<tracked> items, int& most) {
  int count = 0;
  while (tracked* const item = co_await items.next_in_place()) {
    if (tracked::live > most) most = tracked::live;
    count += item->value >= 0 ? 1 : 100;
  }
  co_return count;
}

task<bool> any_by_value(tracked item) { co_return item.value >= 0; }

}  // namespace

TEST_CASE("a predicate's task is gone when the consumer has the item") {
  tracked::reset();
  int asleep = 0;
  int taken = 0;
  {
    testing::virtual_loop loop;
    auto items = waiting_source(asleep) | filter([](const tracked& item) { return any_by_value(item); });
    CHECK(block_on(loop, watch(std::move(items), taken)) == 6);
  }
  CHECK(asleep == 0);
  CHECK(taken == 1);
  CHECK(tracked::clean());
}

TEST_CASE("maps and filters hold nothing while their source waits") {
  tracked::reset();
  int asleep = 0;
  int taken = 0;
  {
    testing::virtual_loop loop;
    const auto same = [](tracked item) { return item; };
    auto items = waiting_source(asleep) | map(same) | filter([](const tracked&) { return true; }) | map(same);
    CHECK(block_on(loop, watch(std::move(items), taken)) == 6);
  }
  CHECK(asleep == 0);
  CHECK(taken == 3);  // what was moved from in the source and in the first map, and the result
  CHECK(tracked::clean());
}
