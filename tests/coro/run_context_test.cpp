// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/run_context.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

TEST_CASE("of a budget no more is taken than it has left") {
  run_budget b(100);
  CHECK(b.take(60));
  CHECK_FALSE(b.take(41));
  CHECK(b.take(40));
  CHECK_FALSE(b.take(1));
  CHECK(b.take(0));
  b.give_back(30);
  CHECK(b.take(30));
  CHECK_FALSE(b.take(1));
}

TEST_CASE("half of a budget is taken, or less, and the rest is for the next one") {
  run_budget b(101);
  CHECK(b.take_half(1000) == 50);
  CHECK(b.take_half(10) == 10);
  CHECK(b.take_half(1000) == 20);
  CHECK(b.take(21));
  CHECK(b.take_half(1000) == 0);
}

TEST_CASE("a run without a budget gives whatever it is asked for") {
  run_budget b(run_budget::unlimited);
  CHECK(b.take(SIZE_MAX));
  CHECK(b.take_half(1000) == 1000);
  b.give_back(1000);
  CHECK(b.take(SIZE_MAX));
}

TEST_CASE("a coroutine that belongs to no run has a context: no budget, a pool of slabs, its own loop, no threads") {
  testing::virtual_loop loop;
  struct local {
    static async_generator<std::size_t> largest() {
      const coroutine_context here = co_await this_context();
      co_yield here.run().budget().largest_item();
    }
    static task<void> look(executor& loop) {
      const coroutine_context here = co_await this_context();
      CHECK(&here.get_executor() == &loop);
      CHECK(&here.run() == &loop.own_run());
      CHECK(here.stage() == nullptr);
      CHECK(here.run().budget().take(SIZE_MAX));
      CHECK(here.run().consumer_waits_since() == 0);
      CHECK(here.run().abandoned()->empty());
      CHECK(&here.runtime().next_loop() == &loop);
      CHECK(here.runtime().loops() == 1);
      CHECK(here.runtime().pool() == nullptr);
      CHECK(here.runtime().http() == nullptr);
      CHECK(here.runtime().device_slots() == nullptr);
      CHECK(here.runtime().slabs(4096).slab_bytes() == 4096);
      async_generator<std::size_t> g = largest();
      const std::optional<std::size_t> bytes = co_await g.next();
      CHECK(*bytes == run_budget::unlimited);
    }
  };
  block_on(loop, local::look(loop));
}

TEST_CASE("a loop that belongs to no runtime keeps its slabs from one pipeline to the next") {
  testing::virtual_loop loop;
  struct local {
    static task<slab_pool> pool(std::size_t bytes) {
      const coroutine_context here = co_await this_context();
      co_return here.runtime().slabs(bytes);
    }
  };
  block_on(loop, local::pool(64 * KiB)).acquire();
  CHECK(block_on(loop, local::pool(64 * KiB)).has_free());
  CHECK_FALSE(block_on(loop, local::pool(128 * KiB)).has_free());
  testing::virtual_loop other;
  CHECK_FALSE(block_on(other, local::pool(64 * KiB)).has_free());
}

TEST_CASE("the context of a run flows down to generators, tasks and spawned tasks, with metrics and without") {
  testing::virtual_loop loop;
  stage_recorder recorder;
  struct local {
    static task<run_context*> of_task() {
      const coroutine_context here = co_await this_context();
      co_return &here.run();
    }
    static async_generator<run_context*> of_generator() {
      co_yield co_await of_task();
    }
    static task<int> count(run_context& mine) {
      const coroutine_context here = co_await this_context();
      int found = &here.run() == &mine ? 1 : 0;
      async_generator<run_context*> g = of_generator();
      const std::optional<run_context*> its = co_await g.next();
      found += *its == &mine ? 1 : 0;
      spawned<run_context*> s(here, of_task());
      run_context* const spawned_in = co_await s;
      found += spawned_in == &mine ? 1 : 0;
      co_return found;
    }
  };
  run_context mine(1, 2);
  for (stage_record* const metrics : {static_cast<stage_record*>(nullptr), recorder.find_or_add("sink", nullptr)}) {
    CHECK(block_on(coroutine_context(loop, mine, metrics), local::count(mine)) == 3);
  }
  CHECK(mine.budget().largest_item() == 2);
}

TEST_CASE("a wait_group notifies each listener once, when it becomes empty") {
  class counting final : public detail::wait_group::listener {
   public:
    void all_done() noexcept override { ++calls; }
    int calls = 0;
  };
  detail::wait_group g;
  counting first;
  counting second;
  g.add();
  g.add();
  g.notify_when_empty(first);
  g.notify_when_empty(second);
  g.done();
  CHECK(first.calls == 0);
  g.done();
  CHECK(first.calls == 1);
  CHECK(second.calls == 1);
  g.add();
  g.done();
  CHECK(first.calls == 1);
  CHECK(g.empty());
}
