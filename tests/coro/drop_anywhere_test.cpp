// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/spawned.hpp>

#include "tests/support/catch.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/root_scope.hpp>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

// An item as stages pass it on: owns memory, has a constructor.
class item {
 public:
  explicit item(int n) : memory_(16, n), object_(n) {}
  int value() const { return memory_.at(0); }
  void twice() { memory_.at(0) *= 2; }

 private:
  std::vector<int> memory_;
  tracked object_;
};

async_generator<item> source(int n) {
  for (int i = 0; i < n; ++i) {
    if (i % 4 != 0) co_await virtual_sleep(duration(1 + i % 3));
    item made(i);
    co_yield give(made);
  }
}
task<item> work(item x, int ticks) {
  if (ticks > 0) co_await virtual_sleep(duration(ticks));
  x.twice();
  co_return std::move(x);
}
// A stage that works ahead: up to `limit` items at once, in order.
async_generator<item> ahead(async_generator<item> in, std::size_t limit, std::uint64_t seed) {
  executor& ex = co_await this_executor();
  rng random(seed);
  std::deque<spawned<item>> window;
  for (bool ended = false;;) {
    while (!ended && window.size() < limit) {
      std::optional<item> x = co_await in.next();
      if (x) {
        window.emplace_back(ex, work(std::move(*x), static_cast<int>(random.below(9))));
      } else {
        ended = true;
      }
    }
    if (window.empty()) co_return;
    item done = co_await window.front();
    window.pop_front();
    co_yield give(done);
  }
}
task<long> drain(async_generator<item> g, int stop_after) {
  long sum = 0;
  int count = 0;
  while (auto x = co_await g.next()) {
    sum += x->value();
    if (++count == stop_after) break;
  }
  co_return sum;
}

}  // namespace

TEST_CASE("two nested stages that work ahead are dropped at a random moment, thousands of times") {
  const std::uint64_t seed = testing::virtual_loop::seed_from_environment(1);
  tracked::reset();
  int finished = 0;
  int dropped = 0;
  for (std::uint64_t trial = 0; trial < 5000; ++trial) {
    rng random(seed, trial, 0);
    std::optional<testing::virtual_loop> loop;
    if (trial % 2 == 0) {
      loop.emplace();
    } else {
      loop.emplace(trial);  // shuffled
    }
    const int n = static_cast<int>(random.below(40));
    const int stop_after = static_cast<int>(random.below(50));
    const std::uint64_t turns = random.below(60);
    {
      auto inner = ahead(source(n), 1 + static_cast<std::size_t>(random.below(5)), trial);
      auto outer = ahead(std::move(inner), 1 + static_cast<std::size_t>(random.below(5)), trial + 1);
      spawned<long> d(*loop, drain(std::move(outer), stop_after));
      run_turns(*loop, turns);
      if (d.done()) {
        const long taken = stop_after == 0 || stop_after > n ? n : stop_after;
        REQUIRE(d.take() == 4 * taken * (taken - 1) / 2);
        ++finished;
      } else {
        ++dropped;
      }
    }
    REQUIRE(loop->frames() == 0);
    REQUIRE(loop->timers() == 0);
    REQUIRE(tracked::clean());
    run_until_idle(*loop);
  }
  CHECK(finished > 500);
  CHECK(dropped > 500);
}
