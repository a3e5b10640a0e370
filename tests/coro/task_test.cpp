// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/task.hpp>

#include "tests/support/catch.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

static_assert(!std::is_copy_constructible_v<task<int>>);
static_assert(!std::is_constructible_v<task<int>, std::coroutine_handle<task<int>::promise_type>>);
static_assert(std::is_nothrow_move_constructible_v<task<int>>);
static_assert(!std::is_aggregate_v<task<>::promise_type>);
static_assert(!std::is_aggregate_v<task<int>::promise_type>);

namespace {

struct anything {
  template <class T>
  operator T() const {
    return T();
  }
};

task<int> value(int v) { co_return v; }
task<int> slow_value(int v) {
  co_await virtual_sleep(10ms);
  co_return v;
}
task<int> failing(bool sleep) {
  if (sleep) co_await virtual_sleep(10ms);
  throw std::runtime_error("broken");
  co_return 0;
}

}  // namespace

TEST_CASE("a task gives its result") {
  struct no_default {
    no_default(int a, int b) : sum(a + b) {}
    int sum;
  };
  struct local {
    static task<std::unique_ptr<int>> pointer() { co_return std::make_unique<int>(3); }
    static task<no_default> built() { co_return {1, 2}; }
    static task<std::string> converted() { co_return "text"; }
    static task<void> nothing(int& ran) {
      ++ran;
      co_return;
    }
    static task<int> all(int& ran) {
      co_await nothing(ran);
      const auto p = co_await pointer();
      const no_default b = co_await built();
      const std::string s = co_await converted();
      co_return co_await value(1) + co_await slow_value(10) + *p + b.sum + static_cast<int>(s.size());
    }
  };
  testing::virtual_loop loop;
  int ran = 0;
  CHECK(block_on(loop, local::all(ran)) == 21);
  CHECK(ran == 1);
  CHECK(loop.elapsed() == 10ms);
  CHECK(loop.frames() == 0);
}

TEST_CASE("a task does nothing until it is awaited") {
  testing::virtual_loop loop;
  tracked::reset();
  bool ran = false;
  struct local {
    static task<void> noting(tracked, bool& r) {
      r = true;
      co_return;
    }
  };
  {
    task<void> t = local::noting(tracked(1), ran);
    CHECK(t);
    CHECK(tracked::live == 1);
    task<void> moved = std::move(t);
    CHECK_FALSE(t);
    CHECK(moved);
  }
  CHECK_FALSE(ran);
  CHECK(tracked::clean());
  task<void> t = local::noting(tracked(2), ran);
  t = local::noting(tracked(3), ran);
  CHECK(tracked::live == 1);
  block_on(loop, std::move(t));
  CHECK(ran);
  CHECK(tracked::clean());
}

TEST_CASE("what escapes a task is thrown where it is awaited") {
  struct local {
    static task<int> caught(bool sleep) {
      int attempts = 0;
      for (int i = 0; i < 3; ++i) {
        try {
          co_return co_await failing(sleep);
        } catch (const std::runtime_error&) {
          ++attempts;
        }
      }
      co_return attempts;
    }
    static task<int> passed_on(bool sleep) { co_return co_await failing(sleep) + 1; }
  };
  testing::virtual_loop loop;
  for (bool sleep : {false, true}) {
    CHECK(block_on(loop, local::caught(sleep)) == 3);
    CHECK_THROWS_WITH(block_on(loop, local::passed_on(sleep)), "broken");
  }
  CHECK(loop.frames() == 0);
}

TEST_CASE("a task runs on the executor and the account of the coroutine that awaits it") {
  struct local {
    static task<bool> inner(executor& ex, stage_record* stage) {
      const coroutine_context here = co_await this_context();
      co_await virtual_sleep(1ms);
      executor& after = co_await this_executor();
      co_return &here.get_executor() == &ex&&& after == &ex&& here.stage() == stage;
    }
    static task<bool> outer(executor& ex, stage_record* stage) { co_return co_await inner(ex, stage); }
  };
  testing::virtual_loop loop;
  stage_recorder recorder;
  stage_record* const stage = recorder.find_or_add("sink", nullptr);
  CHECK(block_on({loop, stage}, local::outer(loop, stage)));
  CHECK(block_on(loop, local::outer(loop, nullptr)));
}

TEST_CASE("a result is destroyed once, its frame with the await") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static task<tracked> make(tracked parameter) {
      tracked inside(parameter.value + 1);
      co_return inside;
    }
    static task<int> use() {
      tracked got = co_await make(tracked(4));
      const int alive = tracked::live;  // only `got`: the child's frame is gone
      CHECK(alive == 1);
      co_return got.value;
    }
  };
  CHECK(block_on(loop, local::use()) == 5);
  CHECK(tracked::clean());
}

TEST_CASE("a tree of tasks may be dropped wherever it is") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static task<tracked> leaf(int step) {
      tracked inside(1);
      if (step > 0) co_await virtual_sleep(10ms);
      co_return inside;
    }
    static task<int> node(int depth, tracked parameter) {
      tracked inside(2);
      int total = parameter.value;
      for (int step = 0; step < 2; ++step) {
        if (depth > 0) total += co_await node(depth - 1, tracked(depth));
        tracked result = co_await leaf(step);
        total += result.value;
      }
      co_return total;
    }
  };
  int reference = block_on(loop, local::node(5, tracked(0)));
  for (int turns = 0; turns < 200; ++turns) {
    spawned<int> s(loop, local::node(5, tracked(0)));
    run_turns(loop, turns);
    if (s.done()) {
      CHECK(s.take() == reference);
      CHECK(turns > 60);
      break;
    }
  }
  CHECK(loop.frames() == 0);
  CHECK(loop.timers() == 0);
  CHECK(tracked::clean());
  run_until_idle(loop);
}

TEST_CASE("a child that waits for its turn in the queue may be dropped with its parent") {
  testing::virtual_loop loop;
  loop.set_inline_budget(64);
  tracked::reset();
  struct local {
    static task<int> deep(int depth, tracked t) {
      if (depth > 0) co_return co_await deep(depth - 1, std::move(t)) + 1;
      co_return t.value;
    }
  };
  for (int turns = 0; turns < 6; ++turns) {
    spawned<int> s(loop, local::deep(200, tracked(1)));
    run_turns(loop, turns);
    CHECK(s.done() == (turns >= 4));
  }
  CHECK(loop.frames() == 0);
  CHECK(tracked::clean());
}

TEST_CASE("a task that lives elsewhere goes on when its parent is dropped") {
  testing::virtual_loop loop;
  struct local {
    static task<void> child(bool& done) {
      co_await virtual_sleep(10ms);
      done = true;
    }
    static task<void> parent(task<void>& child) { co_await std::move(child); }
  };
  bool done = false;
  task<void> child = local::child(done);
  {
    spawned<void> parent(loop, local::parent(child));
    run_turns(loop, 1);
  }
  CHECK_FALSE(done);
  run_until_idle(loop);
  CHECK(done);
}

TEST_CASE("a million awaits of tasks need no stack") {
  struct local {
    static task<long> sum(int n) {
      long total = 0;
      for (int i = 0; i < n; ++i) total += co_await value(i);
      co_return total;
    }
  };
  testing::virtual_loop loop;
  CHECK(block_on(loop, local::sum(1000000)) == 499999500000);
}

TEST_CASE("a hundred thousand nested tasks need no stack") {
  struct local {
    static task<int> deep(int depth) {
      if (depth == 0) {
        co_await virtual_sleep(1ms);
        co_return 0;
      }
      co_return co_await deep(depth - 1) + 1;
    }
  };
  testing::virtual_loop loop;
  CHECK(block_on(loop, local::deep(100000)) == 100000);
}

TEST_CASE("tasks that are always ready starve neither timers nor other coroutines") {
  struct local {
    static task<long> spin(const bool& stop) {
      long n = 0;
      while (!stop && n < 1000000) {
        (void)co_await value(1);
        ++n;
      }
      co_return n;
    }
    static task<void> timer(bool& done) {
      co_await virtual_sleep(0ms);
      co_await yield_now();
      done = true;
    }
  };
  testing::virtual_loop loop;
  bool done = false;
  spawned<void> other(loop, local::timer(done));
  CHECK(block_on(loop, local::spin(done)) <= 6 * executor::inline_budget);
}

TEST_CASE("a parameter that converts to anything does not initialise the promise") {
  struct local {
    static task<void> f(anything) { co_return; }
  };
  testing::virtual_loop loop;
  block_on(loop, local::f(anything()));
  CHECK(loop.frames() == 0);
}

TEST_CASE("misuse of a task is refused with a sentence") {
  struct local {
    static task<void> twice(task<int> t) {
      (void)co_await std::move(t);
      (void)co_await std::move(t);
    }
    static task<void> empty() { (void)co_await task<int>(); }
  };
  testing::virtual_loop loop;
  CHECK(misuse_message([&] { block_on(loop, local::twice(value(1))); }).find("awaited twice") != std::string::npos);
  CHECK(misuse_message([&] { block_on(loop, local::empty()); }).find("an empty task was awaited") != std::string::npos);
  CHECK(misuse_message([&] { block_on(loop, task<int>()); }).find("an empty task was spawned") != std::string::npos);
  task<int> once = value(1);
  CHECK(block_on(loop, std::move(once)) == 1);
  CHECK(misuse_message([&] { block_on(loop, std::move(once)); }).find("moved from") != std::string::npos);
  CHECK(loop.frames() == 0);
}
