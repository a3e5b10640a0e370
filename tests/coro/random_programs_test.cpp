// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Random trees of tasks, generators and spawned tasks, with sleeps in random places and exceptions, give what the same
// tree computed by plain recursion gives, whatever the order in which the run queue serves them.

#include <millrace/coro/async_generator.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/sync/channel.hpp>
#include <millrace/sync/semaphore.hpp>

#include "tests/coro/support.hpp"

#include "tests/support/catch.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

using value = std::uint64_t;

enum class kind {
  leaf,        // a number, perhaps after a sleep
  thrown,      // an exception, perhaps after a sleep
  sum,         // children one after another
  parallel,    // children started at once, results combined in order
  stream,      // children's results through a generator and a chain of relays
  channelled,  // children's results through a channel, sent by a spawned task
  caught,      // a child; its exception becomes a number
  limited,     // children started at once, each under one of few permits
  abandoned,   // a spawned child that is dropped half-way; then another child
};

struct node {
  kind what = kind::leaf;
  value number = 0;
  int sleep = 0;  // 0: none
  int width = 1;
  std::vector<node> children;
};

node random_tree(rng& random, int depth) {
  node n;
  n.number = random.below(1000);
  n.sleep = random.below(2) == 0 ? 0 : 1 + static_cast<int>(random.below(20));
  n.width = 1 + static_cast<int>(random.below(4));
  if (depth == 0) {
    n.what = random.below(12) == 0 ? kind::thrown : kind::leaf;
    return n;
  }
  n.what = static_cast<kind>(random.below(9));
  if (n.what == kind::leaf || n.what == kind::thrown) {
    if (random.below(8) != 0) n.what = kind::sum;
  }
  if (n.what == kind::leaf || n.what == kind::thrown) return n;
  std::size_t count = 1 + static_cast<std::size_t>(random.below(4));
  if (n.what == kind::caught) count = 1;
  if (n.what == kind::abandoned) count = 2;
  for (std::size_t i = 0; i < count; ++i) n.children.push_back(random_tree(random, depth - 1));
  return n;
}

value mix(value a, value b) { return (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0x100000001b3u; }

struct failure {
  explicit failure(value v) : number(v) {}
  value number;
};

// The meaning, by plain recursion.
value reference(const node& n) {
  switch (n.what) {
    case kind::leaf:
      return n.number;
    case kind::thrown:
      throw failure(n.number);
    case kind::caught:
      try {
        return reference(n.children[0]);
      } catch (const failure& f) {
        return mix(f.number, 1);
      }
    case kind::abandoned:
      return reference(n.children[1]);
    default: {
      value total = n.number;
      for (const node& c : n.children) total = mix(total, reference(c));
      return total;
    }
  }
}

task<tracked> compute(const node& n, std::vector<value>& values);

// The result travels beside a tracked object, so that every hand-over is watched.
task<value> evaluate(const node& n) {
  std::vector<value> values;
  tracked t = co_await compute(n, values);
  co_return values.at(static_cast<std::size_t>(t.value));
}
async_generator<value> results(const std::vector<node>& children) {
  for (const node& c : children) {
    const value v = co_await evaluate(c);
    if (c.sleep % 3 == 1) co_await virtual_sleep(duration(c.sleep));
    co_yield v;
  }
}
async_generator<value> relay(async_generator<value> in, int sleep) {
  while (auto v = co_await in.next()) {
    if (sleep > 0) co_await virtual_sleep(duration(sleep));
    co_yield give(*v);
  }
}
task<void> send_all(channel<value>& c, async_generator<value> in) {
  try {
    while (auto v = co_await in.next()) {
      const bool taken = co_await c.send(*v);
      if (!taken) break;
    }
    c.close();
  } catch (...) {
    c.close(std::current_exception());
  }
}
task<value> permitted(semaphore& s, const node& n) {
  semaphore::permit p = co_await s.acquire();
  co_return co_await evaluate(n);
}

task<tracked> compute(const node& n, std::vector<value>& values) {
  executor& ex = co_await this_executor();
  if (n.sleep > 0) co_await virtual_sleep(duration(n.sleep));
  value total = n.number;
  switch (n.what) {
    case kind::leaf:
      break;
    case kind::thrown:
      throw failure(n.number);
    case kind::sum:
      for (const node& c : n.children) total = mix(total, co_await evaluate(c));
      break;
    case kind::parallel: {
      std::vector<spawned<value>> running;
      for (const node& c : n.children) running.push_back(spawned<value>(ex, evaluate(c)));
      for (spawned<value>& r : running) total = mix(total, co_await r);
      break;
    }
    case kind::stream: {
      auto g = results(n.children);
      for (int i = 0; i < n.width; ++i) g = relay(std::move(g), i % 2 == 0 ? 0 : n.sleep);
      while (auto v = co_await g.next()) total = mix(total, *v);
      break;
    }
    case kind::channelled: {
      channel<value> c(static_cast<std::size_t>(n.width));
      spawned<void> sender(ex, send_all(c, results(n.children)));
      while (auto v = co_await c.receive()) total = mix(total, *v);
      co_await sender;
      break;
    }
    case kind::caught:
      try {
        total = co_await evaluate(n.children[0]);
      } catch (const failure& f) {
        total = mix(f.number, 1);
      }
      break;
    case kind::limited: {
      semaphore s(static_cast<std::uint64_t>(n.width));
      std::vector<spawned<value>> running;
      for (const node& c : n.children) running.push_back(spawned<value>(ex, permitted(s, c)));
      for (spawned<value>& r : running) total = mix(total, co_await r);
      break;
    }
    case kind::abandoned: {
      {
        spawned<value> dropped(ex, evaluate(n.children[0]));
        for (int i = 0; i < n.width; ++i) co_await yield_now();
        if (n.sleep > 0) co_await virtual_sleep(duration(n.sleep));
      }
      total = co_await evaluate(n.children[1]);
      break;
    }
  }
  values.push_back(total);
  tracked result(static_cast<int>(values.size()) - 1);
  co_return result;
}

struct outcome {
  bool failed = false;
  value number = 0;
  bool operator==(const outcome&) const = default;
};

}  // namespace

TEST_CASE("random programs of coroutines mean what plain recursion means") {
  const std::uint64_t base = testing::virtual_loop::seed_from_environment(0);
  tracked::reset();
  int failures = 0;
  int dropped = 0;
  for (std::uint64_t seed = base; seed < base + 1000; ++seed) {
    rng random(seed);
    const node tree = random_tree(random, 1 + static_cast<int>(random.below(5)));
    outcome expected;
    try {
      expected.number = reference(tree);
    } catch (const failure& f) {
      expected = outcome{true, f.number};
    }
    if (expected.failed) ++failures;
    for (int order = 0; order < 3; ++order) {
      testing::virtual_loop plain;
      testing::virtual_loop shuffled(mix(seed, static_cast<value>(order)));
      testing::virtual_loop& loop = order == 0 ? plain : shuffled;
      outcome got;
      try {
        got.number = block_on(loop, evaluate(tree));
      } catch (const failure& f) {
        got = outcome{true, f.number};
      }
      INFO("MILLRACE_SEED=" << seed << ", order " << order);
      REQUIRE(got == expected);
      REQUIRE(loop.frames() == 0);
      REQUIRE(loop.timers() == 0);
      REQUIRE(tracked::clean());

      spawned<value> cut(loop, evaluate(tree));  // and dropped half-way
      run_turns(loop, random.below(30));
      if (!cut.done()) ++dropped;
      cut = spawned<value>();
      REQUIRE(loop.frames() == 0);
      REQUIRE(loop.timers() == 0);
      REQUIRE(tracked::clean());
    }
  }
  CHECK(failures > 50);
  CHECK(failures < 600);
  CHECK(dropped > 500);
}
