// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/io/cpu_pool.hpp>

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <time.h>

#include <millrace/coro/block_on.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/io/gate.hpp"
#include "tests/loop/loops.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

/// Counts those that exist and those that were called; waits in front of a gate, if it has one.
class counted_job {
 public:
  struct counts {
    std::atomic<int> alive{0};
    std::atomic<int> called{0};
    std::atomic<int> ended{0};
  };
  explicit counted_job(counts& c, gate* begun = nullptr, gate* wait_for = nullptr) noexcept
      : counts_(&c), begun_(begun), wait_for_(wait_for) {
    ++c.alive;
  }
  counted_job(counted_job&& other) noexcept : counts_(other.counts_), begun_(other.begun_), wait_for_(other.wait_for_) {
    ++counts_->alive;
  }
  ~counted_job() { --counts_->alive; }
  std::unique_ptr<int> operator()() {
    ++counts_->called;
    if (begun_ != nullptr) begun_->open();
    if (wait_for_ != nullptr) wait_for_->pass();
    ++counts_->ended;
    return std::make_unique<int>(7);
  }

 private:
  counts* counts_;
  gate* begun_;
  gate* wait_for_;
};

task<int> run_job(cpu_pool& pool, counted_job job) { co_return *(co_await pool.run(std::move(job))); }

TEST_CASE("a pool has the threads it was asked for", "[io]") {
  CHECK(cpu_pool(3).threads() == 3);
  CHECK(cpu_pool::usable_cores() >= 1);
  CHECK(cpu_pool().threads() == cpu_pool::usable_cores());
}

TEST_CASE("results and exceptions come back to the awaiting executor", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  cpu_pool pool(2);
  const auto here = std::this_thread::get_id();
  bool elsewhere = false;
  const auto all = [&]() -> task<std::string> {
    std::string text = co_await pool.run([] { return std::string("a text that does not fit the small string"); });
    co_await pool.run([&] { elsewhere = std::this_thread::get_id() != here; });
    if (std::this_thread::get_id() != here) throw std::logic_error("not at home");
    try {
      co_await pool.run([]() -> int { throw std::runtime_error("it broke"); });
    } catch (const std::runtime_error& e) {
      text += e.what();
    }
    co_return text;
  };
  CHECK(block_on(loop, all()) == "a text that does not fit the small stringit broke");
  CHECK(elsewhere);
  counted_job::counts counts;
  CHECK(block_on(loop, run_job(pool, counted_job(counts))) == 7);
  CHECK(counts.alive == 0);
  CHECK(loop.operations() == 0);
}

TEST_CASE("time on the pool goes to the awaiting stage", "[io]") {
  testing::virtual_loop loop;
  cpu_pool pool(1);
  stage_recorder recorder;
  stage_record* const stage = recorder.find_or_add("decode", nullptr);
  const auto work = [&]() -> task<void> {
    for (int i = 0; i < 2; ++i) {
      co_await pool.run([] {
        const std::int64_t end = monotonic_ns() + 1000000;
        while (monotonic_ns() < end) {
        }
      });
    }
  };
  block_on({loop, stage}, work());
  CHECK(stage->pool_ns >= 2000000);
}

TEST_CASE("jobs start in the order in which they were awaited", "[io]") {
  testing::virtual_loop loop;
  cpu_pool pool(1);
  std::vector<int> order;
  std::list<spawned<void>> all;
  const auto note = [&](int i) -> task<void> { co_await pool.run([&order, i] { order.push_back(i); }); };
  for (int i = 0; i < 50; ++i) all.emplace_back(loop, note(i));
  for (spawned<void>& s : all) loop.run_until([&] { return s.done(); });
  REQUIRE(order.size() == 50);
  for (int i = 0; i < 50; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("a job that was not begun when it was dropped is never called", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  counted_job::counts counts;
  cpu_pool pool(1);
  { auto unawaited = pool.run(counted_job(counts)); }
  CHECK(counts.alive == 0);
  { task<int> never = run_job(pool, counted_job(counts)); }
  { spawned<int> not_begun(loop, run_job(pool, counted_job(counts))); }
  CHECK(counts.alive == 0);

  gate begun, finish;
  counted_job::counts blocker_counts;
  spawned<int> blocker(loop, run_job(pool, counted_job(blocker_counts, &begun, &finish)));
  turns(loop, 2);
  begun.pass();
  {
    spawned<int> queued(loop, run_job(pool, counted_job(counts)));
    spawned<int> too(loop, run_job(pool, counted_job(counts)));
    turns(loop, 2);
    CHECK(counts.alive > 0);
    CHECK(loop.operations() == 3);
  }
  CHECK(counts.alive == 0);  // taken back at once
  CHECK(loop.operations() == 1);
  finish.open();
  loop.run_until([&] { return blocker.done(); });
  CHECK(blocker.take() == 7);
  CHECK(counts.called == 0);
}

TEST_CASE("a job that runs when it is dropped ends without a waiter, and the executor waits for it", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  counted_job::counts counts;
  cpu_pool pool(1);
  for (int twice = 0; twice < 2; ++twice) {
    gate begun, finish;
    {
      spawned<int> running(loop, run_job(pool, counted_job(counts, &begun, &finish)));
      turns(loop, 2);
      begun.pass();
    }
    CHECK(loop.frames() == 0);
    CHECK(loop.operations() == 1);
    CHECK(counts.alive == 1);  // the job's own
    finish.open();
    loop.drain();
    CHECK(counts.alive == 0);
    CHECK(counts.ended == twice + 1);
  }
}

TEST_CASE("a job that has come home when it is dropped leaves nothing", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  counted_job::counts counts;
  cpu_pool pool(1);
  std::optional<spawned<int>> second;
  const auto drop_second = [&]() -> task<void> {
    co_await pool.run([] {});
    second.reset();
  };
  gate begun, finish;
  spawned<int> blocker(loop, run_job(pool, counted_job(counts, &begun, &finish)));
  turns(loop, 2);
  begun.pass();
  spawned<void> first(loop, drop_second());
  second.emplace(loop, run_job(pool, counted_job(counts)));
  turns(loop, 2);
  finish.open();
  loop.run_until([&] { return first.done() && blocker.done(); });
  CHECK(blocker.take() == 7);
  blocker = spawned<int>();
  loop.drain();
  CHECK(counts.alive == 0);
}

TEST_CASE("jobs dropped while they race to completion leave nothing", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  counted_job::counts counts;
  cpu_pool pool(2);
  rng random(42);
  std::vector<spawned<int>> jobs(16);
  for (int round = 0; round < 2000; ++round) {
    jobs[random.below(jobs.size())] = spawned<int>(loop, run_job(pool, counted_job(counts)));
    if (random.below(3) == 0) turns(loop, static_cast<int>(random.below(4)));
    if (random.below(2) == 0) jobs[random.below(jobs.size())] = spawned<int>();
  }
  jobs.clear();
  loop.drain();
  CHECK(counts.alive == 0);
  CHECK(counts.called == counts.ended);
  CHECK(loop.operations() == 0);
  CHECK(loop.frames() == 0);
}

TEST_CASE("a pool that ends finishes what is queued", "[io]") {
  testing::virtual_loop loop;
  counted_job::counts counts;
  std::vector<spawned<int>> jobs;
  {
    cpu_pool pool(1);
    for (int i = 0; i < 20; ++i) jobs.emplace_back(loop, run_job(pool, counted_job(counts)));
    turns(loop, 2);
  }
  CHECK(counts.ended == 20);
  jobs.resize(10);  // dropping does not need the pool
  for (spawned<int>& j : jobs) {
    loop.run_until([&] { return j.done(); });
    CHECK(j.take() == 7);
  }
  jobs.clear();
  loop.drain();
  CHECK(counts.alive == 0);
}

TEST_CASE("an empty share of a pool runs its jobs where they are awaited", "[io]") {
  counted_job::counts counts;
  testing::virtual_loop loop;
  const cpu_pool::share none;
  const auto run_here = [&]() -> task<int> { co_return *(co_await none.run(counted_job(counts))); };
  CHECK(block_on(loop, run_here()) == 7);
  CHECK(counts.called == 1);
  CHECK(counts.alive == 0);
  const auto run_failing = [&]() -> task<void> {
    auto failing = [] { throw std::runtime_error("no"); };
    co_await none.run(std::move(failing));
  };
  CHECK_THROWS_AS(block_on(loop, run_failing()), std::runtime_error);
  CHECK(loop.operations() == 0);
}

TEST_CASE("executors on several threads share a pool", "[io]") {
  cpu_pool pool(2);
  std::atomic<int> sum{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const auto loop = make_loop(loop_kind::epoll);
      const auto many = [&]() -> task<void> {
        for (int i = 0; i < 200; ++i) sum += co_await pool.run([] { return 1; });
      };
      block_on(*loop, many());
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(sum == 600);
}

TEST_CASE("work for a pool that has ended is refused with a sentence, and nothing is left of it", "[io]") {
  testing::virtual_loop loop;
  counted_job::counts counts;
  cpu_pool::share kept;
  CHECK_FALSE(kept);
  {
    cpu_pool pool(1);
    kept = cpu_pool::share(pool);
    const auto run_kept = [&]() -> task<int> { co_return *(co_await kept.run(counted_job(counts))); };
    CHECK(block_on(loop, run_kept()) == 7);
  }
  const auto run_late = [&]() -> task<int> { co_return *(co_await kept.run(counted_job(counts))); };
  std::string said;
  try {
    block_on(loop, run_late());
  } catch (const usage_error& e) {
    said = e.what();
  }
  CHECK(said.find("the cpu_pool that a stage works on has ended") != std::string::npos);
  CHECK(counts.called == 1);
  CHECK(counts.alive == 0);
  CHECK(loop.operations() == 0);
}

TEST_CASE("a job is awaited once", "[io]") {
  testing::virtual_loop loop;
  cpu_pool pool(1);
  const auto twice = [&]() -> task<int> {
    auto job = pool.run([] { return 1; });
    const int first = co_await std::move(job);
    co_return first + co_await std::move(job);
  };
  CHECK_THROWS_AS(block_on(loop, twice()), usage_error);
}

}  // namespace
