// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/virtual_loop.hpp>

#include <chrono>
#include <cstdint>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/sync/event.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace std::chrono_literals;
using mill::testing::deadlock;
using mill::testing::virtual_loop;

namespace {

mill::task<void> every(mill::duration period, const virtual_loop& loop, std::vector<mill::duration>& at) {
  for (;;) {
    co_await mill::sleep_for(period);
    at.push_back(loop.elapsed());
  }
}

mill::task<void> wait_for(mill::event& e) { co_await e.wait(); }

}  // namespace

TEST_CASE("run_for() does what is due until its end, and the clock stands there") {
  virtual_loop loop;
  std::vector<mill::duration> at;
  mill::spawned<void> watching(loop, every(10s, loop, at));
  loop.run_for(25s);
  CHECK(at == std::vector<mill::duration>{10s, 20s});
  CHECK(loop.elapsed() == 25s);
  CHECK(loop.timers() == 1);
  loop.run_for(5s);  // the end included
  CHECK(at == std::vector<mill::duration>{10s, 20s, 30s});
  loop.run_for(0s);
  CHECK(loop.elapsed() == 30s);
  CHECK(at.size() == 3);
}

TEST_CASE("run_for() with nothing left to do lets the time pass; what waits forever is no deadlock there") {
  virtual_loop loop;
  loop.run_for(1h);
  CHECK(loop.elapsed() == 1h);
  mill::event never;
  mill::spawned<void> waiting(loop, wait_for(never));
  loop.run_for(1h);
  CHECK(loop.elapsed() == 2h);
  CHECK_FALSE(waiting.done());
  CHECK_THROWS_AS(loop.run_until([&] { return waiting.done(); }), deadlock);
  never.set();
  loop.run_for(0s);
  CHECK(waiting.done());
}

TEST_CASE("run_for() runs a long chain of coroutines to its end, and waits for jobs of other threads") {
  virtual_loop loop;
  int steps = 0;
  const auto yields = [&]() -> mill::task<void> {
    for (; steps < 100; ++steps) co_await mill::yield_now();
  };
  mill::spawned<void> yielding(loop, yields());
  const std::uint64_t before = loop.turns();
  loop.run_for(0s);
  CHECK(steps == 100);
  CHECK(loop.turns() - before >= 100);

  mill::cpu_pool pool(1);
  const auto work = [](mill::cpu_pool& p) -> mill::task<void> {
    const auto job = [] {
      const std::int64_t begun = mill::monotonic_ns();
      while (mill::monotonic_ns() - begun < 3'000'000) continue;
    };
    co_await p.run(job);
  };
  mill::spawned<void> working(loop, work(pool));
  loop.run_for(1s);
  CHECK(working.done());
  CHECK(loop.elapsed() == 1s);
}

TEST_CASE("turns() counts the turns of the loop") {
  virtual_loop loop;
  CHECK(loop.turns() == 0);
  const auto yields = []() -> mill::task<void> {
    for (;;) co_await mill::yield_now();
  };
  mill::spawned<void> yielding(loop, yields());
  loop.run_until([&] { return loop.turns() == 42; });
  CHECK(loop.turns() == 42);
}
