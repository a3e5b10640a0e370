// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/sync/all_of.hpp>

#include "tests/support/catch.hpp"

#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/sync/any_of.hpp>
#include <millrace/sync/channel.hpp>
#include <millrace/sync/event.hpp>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

/// What the tasks of one trial share.
class world {
 public:
  explicit world(std::uint64_t trial) : random(20, trial, 0), items(1 + static_cast<std::size_t>(random.below(2))) {}
  rng random;
  channel<tracked> items;
  event flag;
  further_errors further;
};

task<int> leaf(world& w, int kind) {
  tracked kept(1);
  const duration pause(w.random.below(6));
  switch (kind) {
    case 0:
      co_return kept.value;
    case 1:
      co_await virtual_sleep(pause);
      throw std::runtime_error("a leaf");
    case 2: {
      std::optional<tracked> item = co_await w.items.receive();
      co_return item ? item->value : 0;
    }
    case 3: {
      tracked item(2);
      co_await w.items.send(std::move(item));
      co_return 1;
    }
    case 4:
      co_await w.flag.wait();
      co_return 1;
    case 5:
      co_await virtual_sleep(pause);
      w.flag.set();
      co_return 1;
    default:
      co_await virtual_sleep(pause);
      co_return kept.value;
  }
}
task<int> tree(world& w, int depth) {
  tracked kept(1);
  const int kind = static_cast<int>(w.random.below(depth == 0 ? 8 : 12));
  if (kind < 8) {
    co_return co_await leaf(w, kind);
  } else if (kind == 8) {
    auto r = co_await any_of(tree(w, depth - 1), tree(w, depth - 1), sleep_for(duration(4)));
    co_return static_cast<int>(r.index());
  } else if (kind == 9) {
    auto r = co_await all_of(w.further, tree(w, depth - 1), any_of(tree(w, depth - 1), tree(w, depth - 1)));
    co_return std::get<0>(r);
  }
  std::vector<task<int>> children;
  for (std::uint64_t n = 1 + w.random.below(3); n > 0; --n) children.push_back(tree(w, depth - 1));
  if (kind == 10) {
    auto r = co_await any_of(std::move(children));
    co_return r.value;
  }
  std::vector<int> values = co_await all_of(w.further, std::move(children));
  co_return static_cast<int>(values.size());
}

}  // namespace

TEST_CASE("trees of any_of and all_of are dropped at a random moment, thousands of times") {
  const std::uint64_t seed = testing::virtual_loop::seed_from_environment(1);
  tracked::reset();
  int values = 0;
  int errors = 0;
  int dropped = 0;
  for (std::uint64_t trial = seed; trial < seed + 20'000; ++trial) {
    world w(trial);
    std::optional<testing::virtual_loop> loop;
    if (trial % 2 == 0) {
      loop.emplace();
    } else {
      loop.emplace(trial);  // shuffled
    }
    const int turns = static_cast<int>(w.random.below(12));
    {
      std::vector<spawned<int>> roots;
      for (int i = 0; i < 3; ++i) roots.push_back(spawned<int>(*loop, tree(w, 3)));
      run_turns(*loop, turns);
      if (w.random.below(4) == 0) w.items.close();
      if (w.random.below(2) == 0) roots.erase(roots.begin() + static_cast<std::ptrdiff_t>(w.random.below(3)));
      run_turns(*loop, turns);
      for (spawned<int>& root : roots) {
        if (!root.done()) {
          ++dropped;
          continue;
        }
        try {
          root.take();
          ++values;
        } catch (const std::runtime_error&) {
          ++errors;
        }
      }
    }
    while (w.items.size() > 0) w.items.try_receive();
    REQUIRE(loop->frames() == 0);
    REQUIRE(loop->timers() == 0);
    REQUIRE(tracked::clean());
    run_until_idle(*loop);
  }
  CHECK(values > 5000);
  CHECK(errors > 1000);
  CHECK(dropped > 5000);
}
