// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/io/sleep.hpp>

#include <optional>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/loop/loops.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

constexpr duration ms(1000000);

task<void> nap(duration d, int id, std::vector<int>& order) {
  co_await sleep_for(d);
  order.push_back(id);
}

TEST_CASE("sleep takes exactly its virtual time", "[io]") {
  testing::virtual_loop loop;
  std::vector<int> order;
  block_on(loop, nap(5 * ms, 1, order));
  CHECK(loop.elapsed() == 5 * ms);
  block_on(loop, nap(duration(0), 2, order));
  block_on(loop, nap(-3 * ms, 3, order));
  CHECK(loop.elapsed() == 5 * ms);
  const auto until = [](time_point t) -> task<void> { co_await sleep_until(t); };
  block_on(loop, until(loop.now() + 2 * ms));
  block_on(loop, until(loop.now() - 2 * ms));
  CHECK(loop.elapsed() == 7 * ms);
}

TEST_CASE("sleepers wake in the order of their times", "[io]") {
  testing::virtual_loop loop;
  std::vector<int> order;
  spawned<void> a(loop, nap(3 * ms, 3, order));
  spawned<void> b(loop, nap(1 * ms, 1, order));
  spawned<void> c(loop, nap(1 * ms, 2, order));
  loop.run_until([&] { return order.size() == 3; });
  CHECK(order == std::vector<int>{1, 2, 3});
  CHECK(loop.elapsed() == 3 * ms);
}

TEST_CASE("dropping a sleeper at any moment leaves no timer", "[io]") {
  testing::virtual_loop loop;
  std::vector<int> order;
  { task<void> never = nap(ms, 1, order); }
  { spawned<void> queued(loop, nap(ms, 1, order)); }
  {
    spawned<void> asleep(loop, nap(ms, 1, order));
    turns(loop, 2);
    CHECK(loop.timers() == 1);
    asleep = spawned<void>(loop, nap(ms, 1, order));
    turns(loop, 2);
    CHECK(loop.timers() == 1);
  }
  CHECK(loop.timers() == 0);
  {
    // Both are due at the same time; the first to wake drops the other, which is queued already.
    std::optional<spawned<void>> other;
    const auto drop_it = [&]() -> task<void> {
      co_await sleep_for(ms);
      other.reset();
    };
    spawned<void> first(loop, drop_it());
    other.emplace(loop, nap(ms, 1, order));
    loop.run_until([&] { return first.done(); });
    turns(loop, 2);
  }
  CHECK(order.empty());
  CHECK(loop.timers() == 0);
  CHECK(loop.frames() == 0);
}

TEST_CASE("the longest sleep there is does not wrap around", "[io]") {
  testing::virtual_loop loop;
  std::vector<int> order;
  spawned<void> long_one(loop, nap(duration::max(), 1, order));
  block_on(loop, nap(5 * ms, 2, order));
  CHECK(order == std::vector<int>{2});
}

TEST_CASE("sleep on real time is never short", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  std::vector<int> order;
  const time_point before = loop.now();
  spawned<void> long_one(loop, nap(duration::max(), 1, order));
  block_on(loop, nap(duration(1500000), 2, order));
  CHECK(loop.now() - before >= duration(1500000));
  CHECK(order == std::vector<int>{2});
}

}  // namespace
