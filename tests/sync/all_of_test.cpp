// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/sync/all_of.hpp>

#include "tests/support/catch.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <millrace/io/sleep.hpp>
#include <millrace/sync/any_of.hpp>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

task<int> number(duration d, int value) {
  tracked kept(value);
  if (d > 0ms) co_await virtual_sleep(d);
  co_return kept.value;
}
task<void> nothing(duration d, int* ended = nullptr) {
  co_await virtual_sleep(d);
  if (ended != nullptr) ++*ended;
}
task<std::unique_ptr<int>> moved(duration d, int value) {
  co_await virtual_sleep(d);
  co_return std::make_unique<int>(value);
}
task<int> failing(duration d, const char* what) {
  tracked kept(1);
  if (d > 0ms) co_await virtual_sleep(d);
  throw std::runtime_error(what);
}
task<int> sum(task<int> a, task<int> b) {
  auto both = co_await all_of(std::move(a), std::move(b));
  co_return std::get<0>(both) + std::get<1>(both);
}

}  // namespace

TEST_CASE("all_of gives all values in the order of the arguments") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static task<int> mixed() {
      auto all = co_await all_of(number(20ms, 1), nothing(5ms), moved(10ms, 2), moved(1ms, 3), sleep_for(15ms));
      static_assert(std::is_same_v<decltype(all), std::tuple<int, std::monostate, std::unique_ptr<int>,
                                                             std::unique_ptr<int>, std::monostate>>);
      co_return std::get<0>(all) * 100 + *std::get<2>(all) * 10 + *std::get<3>(all);
    }
    static task<int> single() {
      auto one = co_await all_of(number(0ms, 5));
      co_return std::get<0>(one);
    }
  };
  CHECK(block_on(loop, local::mixed()) == 123);
  CHECK(loop.elapsed() == 20ms);
  CHECK(block_on(loop, local::single()) == 5);
  CHECK(block_on(loop, sum(number(0ms, 5), number(0ms, 6))) == 11);
  CHECK(loop.elapsed() == 20ms);
  CHECK(tracked::clean());
}

TEST_CASE("all_of of a vector gives a vector, also an empty one") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static task<std::vector<int>> run(int n) {
      std::vector<task<int>> tasks;
      for (int i = 0; i < n; ++i) tasks.push_back(number(std::chrono::milliseconds(10 - i), i));
      std::vector<int> values = co_await all_of(std::move(tasks));
      co_return std::move(values);
    }
    static task<void> voids(int n, int& ended) {
      std::vector<task<void>> tasks;
      for (int i = 0; i < n; ++i) tasks.push_back(nothing(1ms, &ended));
      co_await all_of(std::move(tasks));
    }
  };
  CHECK(block_on(loop, local::run(4)) == std::vector<int>{0, 1, 2, 3});
  CHECK(block_on(loop, local::run(1)) == std::vector<int>{0});
  CHECK(loop.elapsed() == 20ms);
  CHECK(block_on(loop, local::run(0)).empty());
  int ended = 0;
  block_on(loop, local::voids(3, ended));
  block_on(loop, local::voids(0, ended));
  CHECK(ended == 3);
  CHECK(tracked::clean());
}

TEST_CASE("the first exception drops the others, and further ones are counted") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static task<void> many(further_errors& further) {
      co_await all_of(further, number(1ms, 1), failing(5ms, "first"), failing(5ms, "second"), number(1h, 1),
                      failing(5ms, "third"));
    }
    static task<void> equal(further_errors& further) {
      std::vector<task<int>> tasks;
      for (int i = 0; i < 3; ++i) tasks.push_back(failing(std::chrono::milliseconds(9 - i), "last"));
      co_await all_of(further, std::move(tasks));
    }
  };
  CHECK_THROWS_WITH(block_on(loop, sum(number(20ms, 1), failing(10ms, "broken"))), "broken");
  CHECK(loop.elapsed() == 10ms);
  CHECK_THROWS_WITH(block_on(loop, sum(number(5ms, 1), failing(10ms, "later"))), "later");
  further_errors further;
  CHECK_THROWS_WITH(block_on(loop, local::many(further)), "first");
  CHECK(further.count() == 2);
  CHECK_THROWS_WITH(block_on(loop, local::equal(further)), "last");
  CHECK(further.count() == 2);  // the others were dropped before they threw
  CHECK(loop.frames() == 0);
  CHECK(loop.timers() == 0);
  CHECK(tracked::clean());
}

TEST_CASE("any_of and all_of nest") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static task<int> run() {
      auto both = co_await all_of(any_of(number(30ms, 1), number(10ms, 2)), any_of(number(20ms, 3), sleep_for(25ms)));
      auto last = co_await any_of(all_of(number(1ms, 4), number(9ms, 5)), sleep_for(4ms));
      const int a = std::get<1>(std::get<0>(both));
      const int b = std::get<0>(std::get<1>(both));
      co_return a * 100 + b * 10 + static_cast<int>(last.index());
    }
  };
  CHECK(block_on(loop, local::run()) == 231);
  CHECK(loop.elapsed() == 24ms);
  CHECK(loop.frames() == 0);
  CHECK(loop.timers() == 0);
  CHECK(tracked::clean());
}

TEST_CASE("all_of that is dropped drops all, wherever they are") {
  tracked::reset();
  { task<int> never = sum(number(1ms, 1), number(2ms, 2)); }
  CHECK(tracked::clean());
  bool ended = false;
  for (int turns = 0; !ended; ++turns) {
    testing::virtual_loop loop;
    {
      spawned<int> s(loop, sum(number(1ms, 1), number(2ms, 2)));
      run_turns(loop, turns);
      ended = s.done();
    }
    REQUIRE(loop.frames() == 0);
    REQUIRE(loop.timers() == 0);
    REQUIRE(tracked::clean());
    REQUIRE(turns < 20);
  }
}
