// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/spawned.hpp>

#include "tests/support/catch.hpp"

#include <deque>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

static_assert(!std::is_copy_constructible_v<spawned<int>>);
static_assert(std::is_nothrow_move_constructible_v<spawned<int>>);

namespace {

task<int> after(duration d, int v, tracked = tracked()) {
  if (d > 0ms) co_await virtual_sleep(d);
  co_return v;
}
task<int> failing(duration d) {
  if (d > 0ms) co_await virtual_sleep(d);
  throw std::runtime_error("broken");
  co_return 0;
}
task<int> await_it(spawned<int>& s) { co_return co_await s; }

}  // namespace

TEST_CASE("a spawned task runs by itself, through the queue") {
  testing::virtual_loop loop;
  spawned<int> s(loop, after(0ms, 5));
  CHECK(s);
  CHECK_FALSE(s.done());
  run_until_idle(loop);
  REQUIRE(s.done());
  CHECK(s.take() == 5);
}

TEST_CASE("awaiting a spawned task, before and after its end") {
  testing::virtual_loop loop;
  spawned<int> s(loop, after(10ms, 5));
  spawned<int> t(loop, after(20ms, 6));
  spawned<int> u(loop, after(0ms, 7));
  CHECK(block_on(loop, await_it(t)) == 6);
  CHECK(s.done());
  CHECK(block_on(loop, await_it(s)) == 5);
  CHECK(block_on(loop, await_it(u)) == 7);
  CHECK(loop.elapsed() == 20ms);
}

TEST_CASE("spawned tasks run side by side") {
  struct local {
    static task<int> all(executor& ex) {
      std::vector<spawned<int>> tasks;  // reallocates while they run
      for (int i = 0; i < 10; ++i) tasks.push_back(spawned<int>(ex, after(10ms, i)));
      int total = 0;
      for (spawned<int>& t : tasks) total += co_await t;
      co_return total;
    }
  };
  testing::virtual_loop loop;
  CHECK(block_on(loop, local::all(loop)) == 45);
  CHECK(loop.elapsed() == 10ms);
}

TEST_CASE("the end of a spawned task can be awaited alone, and its result stays") {
  testing::virtual_loop loop;
  struct local {
    static task<void> end_of(spawned<int>& s) { co_await s.ended(); }
    static task<void> twice(spawned<int>& s) {
      spawned<void> waits(co_await this_context(), end_of(s));
      co_await yield_now();
      co_await s.ended();
    }
  };
  spawned<int> s(loop, after(10ms, 5));
  {
    spawned<void> dropped(loop, local::end_of(s));
    run_turns(loop, 2);
    CHECK_FALSE(dropped.done());
  }
  block_on(loop, local::end_of(s));
  CHECK(loop.elapsed() == 10ms);
  block_on(loop, local::end_of(s));
  CHECK(block_on(loop, await_it(s)) == 5);
  spawned<int> t(loop, failing(10ms));
  block_on(loop, local::end_of(t));
  CHECK_THROWS_WITH(block_on(loop, await_it(t)), "broken");
  spawned<int> none;
  CHECK_THROWS_AS(block_on(loop, local::end_of(none)), usage_error);
  spawned<int> u(loop, after(10ms, 6));
  CHECK_THROWS_AS(block_on(loop, local::twice(u)), usage_error);
}

TEST_CASE("the exception of a spawned task is thrown by its await, or dropped with it") {
  testing::virtual_loop loop;
  spawned<int> s(loop, failing(10ms));
  CHECK_THROWS_WITH(block_on(loop, await_it(s)), "broken");
  spawned<int> t(loop, failing(0ms));
  run_until_idle(loop);
  CHECK(t.done());
  CHECK_THROWS_WITH(t.take(), "broken");
  { spawned<int> dropped(loop, failing(0ms)); }
  { spawned<int> dropped(loop, failing(5ms)); }
  run_until_idle(loop);
}

TEST_CASE("dropping a spawned task stops it at once") {
  testing::virtual_loop loop;
  tracked::reset();
  SECTION("queued") { spawned<int> s(loop, after(10ms, 1)); }
  SECTION("waiting") {
    spawned<int> s(loop, after(10ms, 1));
    run_turns(loop, 1);
    CHECK(loop.timers() == 1);
  }
  SECTION("ended") {
    spawned<int> s(loop, after(10ms, 1));
    run_until_idle(loop);
    CHECK(s.done());
  }
  SECTION("by assigning an empty one") {
    spawned<int> s(loop, after(10ms, 1));
    run_turns(loop, 1);
    s = spawned<int>();
    CHECK_FALSE(s);
    CHECK_FALSE(s.done());
  }
  CHECK(loop.frames() == 0);
  CHECK(loop.timers() == 0);
  CHECK(tracked::clean());
  run_until_idle(loop);
  CHECK(loop.elapsed() <= 10ms);
}

TEST_CASE("a spawned task may be moved and replaced while it runs") {
  testing::virtual_loop loop;
  tracked::reset();
  spawned<int> a(loop, after(10ms, 1));
  spawned<int> b(loop, after(20ms, 2));
  run_turns(loop, 1);
  spawned<int> c = std::move(a);
  CHECK_FALSE(a);
  c = std::move(b);  // stops the first
  CHECK(loop.frames() == 1);
  auto& same = c;
  c = std::move(same);
  CHECK(c);
  CHECK(block_on(loop, await_it(c)) == 2);
  CHECK(loop.elapsed() == 20ms);
}

TEST_CASE("a spawned task may be moved while it is awaited") {
  struct local {
    static task<int> sum_of(std::vector<spawned<int>>& tasks) { co_return co_await tasks[0] + 100; }
  };
  testing::virtual_loop loop;
  std::vector<spawned<int>> tasks;
  tasks.push_back(spawned<int>(loop, after(10ms, 1)));
  tasks.shrink_to_fit();
  spawned<int> waiter(loop, local::sum_of(tasks));
  run_turns(loop, 1);
  for (int i = 0; i < 100; ++i) tasks.push_back(spawned<int>(loop, after(5ms, 2)));  // moves the first
  SECTION("and its end is seen") {
    run_until_idle(loop);
    REQUIRE(waiter.done());
    CHECK(waiter.take() == 101);
  }
  SECTION("and the wait may be dropped") {
    waiter = spawned<int>();
    run_until_idle(loop);
    CHECK(tasks[0].done());
    CHECK(tasks[0].take() == 1);
  }
}

TEST_CASE("a dropped wait leaves the result for another") {
  testing::virtual_loop loop;
  spawned<int> s(loop, after(10ms, 5));
  SECTION("dropped while the task runs") {
    spawned<int> waiter(loop, await_it(s));
    run_turns(loop, 1);
  }
  SECTION("dropped when the task has ended and the waiter is queued") {
    gate g;
    struct local {
      static task<int> gated(gate& g) {
        co_await g.wait();
        co_return 5;
      }
    };
    s = spawned<int>(loop, local::gated(g));
    spawned<int> waiter(loop, await_it(s));
    run_turns(loop, 1);
    g.post();
    loop.run_until([&] { return s.done(); });
    CHECK_FALSE(waiter.done());
  }
  CHECK(block_on(loop, await_it(s)) == 5);
}

TEST_CASE("a deque of spawned tasks dropped with its owner, the first one awaited") {
  struct local {
    static task<int> window(executor& ex) {
      std::deque<spawned<int>> queue;
      for (int i = 0; i < 8; ++i) queue.emplace_back(ex, after(std::chrono::milliseconds(10 * (8 - i)), i));
      int total = 0;
      while (!queue.empty()) {
        total += co_await queue.front();
        queue.pop_front();
        queue.emplace_back(ex, after(10ms, 0));
        if (total > 20) break;
      }
      co_return total;
    }
  };
  for (int turns = 0; turns < 30; ++turns) {
    testing::virtual_loop loop;
    tracked::reset();
    {
      spawned<int> s(loop, local::window(loop));
      run_turns(loop, turns);
    }
    CHECK(loop.frames() == 0);
    CHECK(loop.timers() == 0);
    CHECK(tracked::clean());
  }
}

TEST_CASE("misuse of a spawned task is refused with a sentence") {
  testing::virtual_loop loop;
  spawned<int> s(loop, after(10ms, 1));
  spawned<int> one(loop, await_it(s));
  spawned<int> two(loop, await_it(s));
  CHECK(misuse_message([&] { s.take(); }).find("before the task is done") != std::string::npos);
  loop.run_until([&] { return one.done() && two.done(); });
  CHECK(one.take() == 1);
  CHECK(misuse_message([&] { two.take(); }).find("one coroutine may wait") != std::string::npos);
  spawned<int> none;
  CHECK(misuse_message([&] { block_on(loop, await_it(none)); }).find("empty") != std::string::npos);
  CHECK(misuse_message([&] { none.take(); }).find("before the task is done") != std::string::npos);
}
