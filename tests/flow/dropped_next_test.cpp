// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/buffer.hpp>

// A next() that waits may be dropped, and loses nothing: the item that then comes stays in the stage until the next
// call. A stage with room for one must go on after it: a task that found the item still there must be woken once it has
// been taken.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/coro/spawned.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/io/timeout.hpp>
#include <millrace/testing/census.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace flow_tests;
using namespace std::chrono_literals;
using mill::testing::virtual_loop;

namespace {

/// An item every 10 ms.
mill::async_generator<int> slow(int first, int n) {
  for (int i = first; i < first + n; ++i) {
    co_await mill::sleep_for(10ms);
    int x = i;
    co_yield mill::give(x);
  }
}

mill::async_generator<mill::async_generator<int>> slow_sources(int n) {
  for (int i = 0; i < n; ++i) {
    auto source = slow(10 * i, 3);
    co_yield mill::give(source);
  }
}

mill::task<int> plus_hundred(int x) {
  co_await mill::sleep_for(1ms);
  co_return x + 100;
}

mill::task<void> ask(mill::stream<int>& source, int& answers) {
  const std::optional<int> item = co_await source.next();
  answers += item ? 1 : 0;
}

enum class drop { by_timeout, by_destroying };

/// Asks for an item and lets go before it comes.
mill::task<void> ask_and_drop(mill::stream<int>& source, drop how, int& answers) {
  if (how == drop::by_timeout) {
    bool late = false;
    try {
      auto asking = mill::with_timeout(5ms, ask(source, answers));
      co_await std::move(asking);
    } catch (const mill::timeout_error&) {
      late = true;
    }
    CHECK(late);
  } else {
    mill::executor& ex = co_await mill::this_executor();
    mill::spawned<void> asking(ex, ask(source, answers));
    co_await mill::sleep_for(5ms);
    CHECK(!asking.done());
  }
}

mill::task<void> drop_one_and_take_all(mill::stream<int>& source, drop how, ints& all) {
  int answers = 0;
  co_await ask_and_drop(source, how, answers);
  co_await mill::sleep_for(50ms);  // the item comes, and no consumer waits
  CHECK(answers == 0);
  while (std::optional<int> item = co_await source.next()) all.push_back(*item);
}

/// A stage that stands still here is a deadlock, which the loop reports.
ints after_a_dropped_next(mill::stream<int> stage, drop how) {
  virtual_loop loop;
  mill::testing::census before(loop);
  ints all;
  {
    mill::stream<int> source = std::move(stage);  // goes before the loop, also when an error leaves here
    mill::block_on(loop, drop_one_and_take_all(source, how, all));
  }
  loop.drain();
  CHECK(before.difference() == "");
  return all;
}
ints sorted(ints all) {
  std::sort(all.begin(), all.end());
  return all;
}

TEST_CASE("a buffer goes on after a next() was dropped") {
  const drop how = GENERATE(drop::by_timeout, drop::by_destroying);
  for (std::size_t items : {1, 2, 3}) {
    CAPTURE(items);
    CHECK(after_a_dropped_next(slow(0, 5) | mill::buffer({.items = items}), how) == ints{0, 1, 2, 3, 4});
  }
}

TEST_CASE("merge goes on after a next() was dropped") {
  const drop how = GENERATE(drop::by_timeout, drop::by_destroying);
  CHECK(after_a_dropped_next(mill::merge(slow(0, 5)), how) == ints{0, 1, 2, 3, 4});
  CHECK(sorted(after_a_dropped_next(mill::merge(slow(0, 5), slow(10, 3)), how)) == ints{0, 1, 2, 3, 4, 10, 11, 12});
}

TEST_CASE("interleave goes on after a next() was dropped") {
  const drop how = GENERATE(drop::by_timeout, drop::by_destroying);
  const mill::order order = GENERATE(mill::order::ordered, mill::order::arrival);
  for (std::size_t width : {1, 2, 8}) {
    CAPTURE(width);
    const ints all =
        after_a_dropped_next(slow_sources(3) | mill::interleave({.width = width, .order = order, .ahead = 1}), how);
    CHECK(sorted(all) == ints{0, 1, 2, 10, 11, 12, 20, 21, 22});
  }
}

TEST_CASE("map_concurrent goes on after a next() was dropped") {
  const drop how = GENERATE(drop::by_timeout, drop::by_destroying);
  const mill::order order = GENERATE(mill::order::ordered, mill::order::arrival);
  for (std::size_t limit : {1, 2, 3}) {
    CAPTURE(limit);
    const ints all =
        after_a_dropped_next(slow(0, 5) | mill::map_concurrent(plus_hundred, {.limit = limit, .order = order}), how);
    CHECK(sorted(all) == ints{100, 101, 102, 103, 104});
  }
}

}  // namespace
