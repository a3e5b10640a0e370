// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/sync/any_of.hpp>

#include "tests/support/catch.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <millrace/io/sleep.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/sync/semaphore.hpp>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

/// Keeps a tracked object in its frame, and says when that goes.
task<int> number(duration d, int value, std::string* log = nullptr) {
  class leaving {
   public:
    leaving(std::string* log, int value) noexcept : log_(log), value_(value) {}
    leaving(const leaving&) = delete;
    leaving& operator=(const leaving&) = delete;
    ~leaving() {
      if (log_ != nullptr) *log_ += "-" + std::to_string(value_);
    }

   private:
    std::string* log_;
    int value_;
  };
  const leaving guard(log, value);
  tracked kept(value);
  if (d > 0ms) co_await virtual_sleep(d);
  if (log != nullptr) *log += "+" + std::to_string(value);
  co_return kept.value;
}
task<std::string> text(duration d) {
  co_await virtual_sleep(d);
  co_return std::string(40, 'x');
}
task<void> nothing(duration d) { co_await virtual_sleep(d); }
task<int> failing(duration d, const char* what) {
  if (d > 0ms) co_await virtual_sleep(d);
  throw std::runtime_error(what);
}
task<std::unique_ptr<int>> moved(duration d, int value) {
  co_await virtual_sleep(d);
  co_return std::make_unique<int>(value);
}
/// "index:value" of two numbers.
task<std::string> faster(task<int> a, task<int> b) {
  auto r = co_await any_of(std::move(a), std::move(b));
  const int value = r.index() == 0 ? std::get<0>(r) : std::get<1>(r);
  co_return std::to_string(r.index()) + ":" + std::to_string(value);
}
async_generator<int> numbers(duration pause) {
  for (int i = 1; i <= 3; ++i) {
    co_await virtual_sleep(pause);
    co_yield i;
  }
}

}  // namespace

TEST_CASE("the first of several tasks counts and the others are dropped") {
  testing::virtual_loop loop;
  tracked::reset();
  CHECK(block_on(loop, faster(number(20ms, 1), number(10ms, 2))) == "1:2");
  CHECK(loop.elapsed() == 10ms);
  CHECK(block_on(loop, faster(number(5ms, 1), number(10ms, 2))) == "0:1");
  CHECK(loop.elapsed() == 15ms);
  CHECK(loop.timers() == 0);
  CHECK(loop.frames() == 0);
  CHECK(tracked::clean());
}

TEST_CASE("of tasks that end in one turn the first argument counts") {
  testing::virtual_loop loop;
  CHECK(block_on(loop, faster(number(0ms, 1), number(0ms, 2))) == "0:1");
  CHECK(block_on(loop, faster(number(7ms, 1), number(7ms, 2))) == "0:1");
  // The second one's timer was armed, and fires, before the first one's.
  struct local {
    static task<int> late(time_point due) {
      co_await yield_now();
      co_await sleep_until(due);
      co_return 1;
    }
    static task<int> early(time_point due) {
      co_await sleep_until(due);
      co_return 2;
    }
  };
  const time_point due = loop.now() + duration(50ms);
  CHECK(block_on(loop, faster(local::late(due), local::early(due))) == "0:1");
  CHECK_THROWS_WITH(block_on(loop, faster(failing(5ms, "first"), failing(5ms, "second"))), "first");
  CHECK(block_on(loop, faster(number(5ms, 1), failing(5ms, "second"))) == "0:1");
}

TEST_CASE("an exception counts as well as a value") {
  testing::virtual_loop loop;
  tracked::reset();
  CHECK_THROWS_WITH(block_on(loop, faster(number(20ms, 1), failing(10ms, "broken"))), "broken");
  CHECK_THROWS_WITH(block_on(loop, faster(number(20ms, 1), failing(0ms, "at once"))), "at once");
  CHECK(block_on(loop, faster(number(1ms, 1), failing(10ms, "too late"))) == "0:1");
  CHECK(loop.timers() == 0);
  CHECK(loop.frames() == 0);
  CHECK(tracked::clean());
}

TEST_CASE("the losers are gone before the result is there, the last one first") {
  testing::virtual_loop loop;
  std::string log;
  struct local {
    static void say(std::string& log, std::size_t winner) { log += " won " + std::to_string(winner); }
    static task<void> run(std::string& log) {  // in the same expression: all are gone at its end
      say(log, (co_await any_of(number(30ms, 1, &log), number(10ms, 2, &log), number(20ms, 3, &log))).index());
    }
  };
  block_on(loop, local::run(log));
  CHECK(log == "+2-2-3-1 won 1");
}

TEST_CASE("any_of takes tasks without values, with move-only ones, a single one, and what else is awaited") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static task<int> voids() {
      auto r = co_await any_of(nothing(5ms), text(9ms));
      static_assert(std::is_same_v<decltype(r), std::variant<std::monostate, std::string>>);
      co_return static_cast<int>(r.index());
    }
    static task<int> move_only() {
      auto r = co_await any_of(moved(9ms, 1), moved(5ms, 2), number(20ms, 3));  // not std::any_of()
      co_return *std::get<1>(r);
    }
    static task<int> single() {
      auto r = co_await any_of(number(5ms, 4));
      co_return std::get<0>(r);
    }
    static task<int> leaves() {
      event e;
      semaphore s(1);
      auto taken = co_await any_of(e.wait(), s.acquire(), sleep_for(5ms));
      const bool held = s.used() == 1;
      taken = co_await any_of(e.wait(), s.acquire(), sleep_for(5ms));
      co_return static_cast<int>(taken.index()) + (held ? 10 : 0) + static_cast<int>(100 * s.used());
    }
    static task<int> kept() {
      executor& ex = co_await this_executor();
      spawned<int> running(ex, number(9ms, 7));
      auto first = co_await any_of(running.ended(), sleep_for(5ms));
      auto second = co_await any_of(sleep_for(4ms), running.ended());
      const int value = co_await running;
      co_return static_cast<int>(first.index()) * 100 + static_cast<int>(second.index()) * 10 + value;
    }
    static task<int> items() {
      auto g = numbers(10ms);
      int sum = 0;
      int turns = 0;
      for (;; ++turns) {
        auto r = co_await any_of(g.next(), sleep_for(4ms));
        if (r.index() == 1) continue;
        if (!std::get<0>(r)) break;
        sum += *std::get<0>(r);
      }
      co_return sum * 100 + turns;
    }
  };
  CHECK(block_on(loop, local::voids()) == 0);
  CHECK(block_on(loop, local::move_only()) == 2);
  CHECK(block_on(loop, local::single()) == 4);
  CHECK(block_on(loop, local::leaves()) == 12);
  CHECK(block_on(loop, local::kept()) == 107);
  const int items = block_on(loop, local::items());
  CHECK(items / 100 == 6);  // an item that comes after its next() was dropped is the following one's
  CHECK(items % 100 > 3);
  CHECK(loop.timers() == 0);
  CHECK(tracked::clean());
}

TEST_CASE("any_of of a vector tells which task it was") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static task<int> run(std::vector<int> times) {
      std::vector<task<int>> tasks;
      for (std::size_t i = 0; i < times.size(); ++i) {
        tasks.push_back(number(std::chrono::milliseconds(times[i]), static_cast<int>(i) + 10));
      }
      auto r = co_await any_of(std::move(tasks));
      co_return static_cast<int>(r.index) * 100 + r.value;
    }
    static task<std::size_t> voids() {
      std::vector<task<void>> tasks;
      tasks.push_back(nothing(9ms));
      tasks.push_back(nothing(3ms));
      auto r = co_await any_of(std::move(tasks));
      co_return r.index;
    }
    static task<void> none() {
      std::vector<task<int>> tasks;
      co_await any_of(std::move(tasks));
    }
    static task<void> empty_task() {
      task<int> a = number(0ms, 1);
      task<int> b;
      co_await any_of(std::move(a), std::move(b));
    }
  };
  CHECK(block_on(loop, local::run({30, 10, 20})) == 111);
  CHECK(block_on(loop, local::run({5})) == 10);
  CHECK(block_on(loop, local::run({9, 5, 5, 5})) == 111);
  CHECK(block_on(loop, local::voids()) == 1);
  CHECK_THROWS_AS(block_on(loop, local::none()), usage_error);
  CHECK_THROWS_AS(block_on(loop, local::empty_task()), usage_error);
  CHECK(loop.frames() == 0);
  CHECK(tracked::clean());
}

TEST_CASE("any_of that is dropped drops all, before the start, while it waits, and when one has ended") {
  tracked::reset();
  { task<std::string> never = faster(number(1ms, 1), number(2ms, 2)); }
  CHECK(tracked::clean());
  bool ended = false;
  for (int turns = 0; !ended; ++turns) {
    testing::virtual_loop loop;
    {
      spawned<std::string> s(loop, faster(number(1ms, 1), number(2ms, 2)));
      run_turns(loop, turns);
      ended = s.done();
    }
    REQUIRE(loop.frames() == 0);
    REQUIRE(loop.timers() == 0);
    REQUIRE(tracked::clean());
    REQUIRE(turns < 20);
  }
}

TEST_CASE("tasks made inside of the awaiting expression are destroyed once") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static task<int> of(duration d, tracked t, std::string s) {
      co_await virtual_sleep(d);
      co_return t.value + static_cast<int>(s.size());
    }
    static task<int> run() {
      auto r = co_await any_of(of(5ms, tracked(1), std::string(50, 'x')), of(2ms, tracked(2), std::string(60, 'x')));
      auto all = std::get<1>(r);
      auto again = co_await any_of(of(1ms, tracked(3), std::string(70, 'x')), text(9ms));
      co_return all + std::get<0>(again);
    }
  };
  CHECK(block_on(loop, local::run()) == 62 + 73);
  CHECK(tracked::clean());
}
