// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/io/run_on.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include <millrace/coro/block_on.hpp>
#include <millrace/io/loop_thread.hpp>
#include <millrace/io/sleep.hpp>

#include "tests/io/gate.hpp"
#include "tests/loop/loops.hpp"
#include "tests/loop/refuse_call.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

loop_options options_of(loop_kind k) {
  loop_options o;
  o.force_epoll = k == loop_kind::epoll;
  return o;
}

/// In a frame: notes on which thread it was made and destroyed.
class resident {
 public:
  struct counts {
    std::atomic<int> alive{0};
    std::atomic<int> strangers{0};
  };
  explicit resident(counts& c) : counts_(c), home_(std::this_thread::get_id()) { ++c.alive; }
  resident(const resident&) = delete;
  ~resident() {
    if (std::this_thread::get_id() != home_) ++counts_.strangers;
    --counts_.alive;
  }

 private:
  counts& counts_;
  std::thread::id home_;
};

task<int> stay(resident::counts& counts, duration d, gate* begun) {
  resident r(counts);
  if (begun != nullptr) begun->open();
  co_await sleep_for(d);
  co_return 7;
}
task<int> fetch(event_loop& other, resident::counts& counts, duration d, gate* begun = nullptr) {
  const auto make = [&counts, d, begun] { return stay(counts, d, begun); };
  co_return co_await run_on(other, make);
}

constexpr duration forever = duration::max();

TEST_CASE("a task runs on the other loop and its result comes home", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  loop_thread other(options_of(kind_of_loop));
  CHECK(other.loop().backend() == std::string(loop.backend()));
  const auto here = std::this_thread::get_id();
  const auto all = [&]() -> task<std::string> {
    const auto make_text = [&]() -> task<std::string> {
      co_await sleep_for(duration(1000));
      if (std::this_thread::get_id() == here) throw std::logic_error("not away");
      co_return "a text that does not fit the small string";
    };
    std::string text = co_await run_on(other.loop(), make_text);
    if (std::this_thread::get_id() != here) throw std::logic_error("not at home");
    const auto fail = []() -> task<void> {
      co_await yield_now();
      throw std::runtime_error("it broke");
    };
    try {
      co_await run_on(other.loop(), fail);
    } catch (const std::runtime_error& e) {
      text += e.what();
    }
    const auto at_home = []() -> task<int> { co_return 1; };
    text += std::to_string(co_await run_on(loop, at_home));
    co_return text;
  };
  CHECK(block_on(loop, all()) == "a text that does not fit the small stringit broke1");
  CHECK(loop.operations() == 0);
}

TEST_CASE("what cannot even start is thrown at home", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  loop_thread other(options_of(kind_of_loop));
  const auto all = [&]() -> task<void> {
    const auto make = []() -> task<void> { throw std::runtime_error("no task"); };
    co_await run_on(other.loop(), make);
  };
  CHECK_THROWS_WITH(block_on(loop, all()), "no task");
}

TEST_CASE("a task dropped at home is destroyed on its own thread", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  resident::counts counts;
  loop_thread other(options_of(kind_of_loop));
  { task<int> never = fetch(other.loop(), counts, forever); }
  { spawned<int> not_begun(loop, fetch(other.loop(), counts, forever)); }
  CHECK(loop.operations() == 0);
  {
    spawned<int> sent(loop, fetch(other.loop(), counts, forever));
    turns(loop, 1);
  }
  for (int twice = 0; twice < 2; ++twice) {
    gate begun;
    spawned<int> running(loop, fetch(other.loop(), counts, forever, &begun));
    turns(loop, 1);
    begun.pass();
  }
  CHECK(loop.operations() > 0);
  loop.drain();
  CHECK(counts.alive == 0);
  CHECK(counts.strangers == 0);
  CHECK(loop.frames() == 0);
}

TEST_CASE("a task dropped at the moment it ends goes home once", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  resident::counts counts;
  loop_thread other(options_of(kind_of_loop));
  for (int i = 0; i < 20; ++i) {
    gate ending, dropped;
    const auto end_slowly = [&]() -> task<int> {
      const auto make = [&]() -> task<int> {
        resident r(counts);
        ending.open();
        dropped.pass();
        co_return 7;
      };
      co_return co_await run_on(other.loop(), make);
    };
    {
      spawned<int> running(loop, end_slowly());
      turns(loop, 1);
      ending.pass();
    }
    dropped.open();
    loop.drain();
    CHECK(counts.alive == 0);
  }
  CHECK(counts.strangers == 0);
}

TEST_CASE("a loop thread may go as soon as its tasks are dropped", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  resident::counts counts;
  for (int i = 0; i < 30; ++i) {
    gate begun;
    std::vector<spawned<int>> tasks;
    loop_thread other(options_of(kind_of_loop));
    for (int k = 0; k < 8; ++k)
      tasks.emplace_back(loop, fetch(other.loop(), counts, k % 2 == 0 ? forever : duration(k)));
    turns(loop, i % 5);
    tasks.clear();
  }
  CHECK(counts.alive == 0);
  CHECK(counts.strangers == 0);
  loop.drain();
  CHECK(loop.operations() == 0);
}

TEST_CASE("tasks dropped while they race home leave nothing", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  resident::counts counts;
  loop_thread one(options_of(kind_of_loop));
  loop_thread two(options_of(kind_of_loop));
  rng random(7);
  int finished = 0;
  const auto run_one = [&](event_loop& other, duration d) -> task<void> {
    if (co_await fetch(other, counts, d) == 7) ++finished;
  };
  {
    std::vector<spawned<void>> tasks(12);
    for (int round = 0; round < 1500; ++round) {
      event_loop& other = random.below(2) == 0 ? one.loop() : two.loop();
      const duration d(static_cast<std::int64_t>(random.below(4) * 10000));
      tasks[random.below(tasks.size())] = spawned<void>(loop, run_one(other, d));
      turns(loop, static_cast<int>(random.below(6)));
      if (random.below(2) == 0) tasks[random.below(tasks.size())] = spawned<void>();
    }
  }
  block_on(loop, run_one(one.loop(), duration(0)));  // and both loops still serve
  block_on(loop, run_one(two.loop(), duration(0)));
  CHECK(finished >= 2);
  CHECK(counts.alive == 0);
  CHECK(counts.strangers == 0);
  CHECK(loop.frames() == 0);
}

TEST_CASE("a loop thread that cannot have a loop says why", "[io]") {
  if (MILLRACE_ASAN)
    MILLRACE_SKIP("the undefined behaviour sanitizer, which comes with this one, needs descriptors itself");
  rlimit before;
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{3, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  int code = 0;
  try {
    loop_thread t;
  } catch (const io_error& e) {
    code = e.code().value();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(code == EMFILE);
}

task<int> stay_in_broken_loop(resident::counts& counts, std::atomic<bool>& filtered) {
  resident r(counts);
  filtered = break_loop_of_this_thread();
  if (filtered) co_await sleep_for(forever);
  co_return 7;
}

TEST_CASE("a loop thread that fails in the kernel notifies all waiters, and later ones", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  resident::counts counts;
  std::atomic<bool> filtered{false};
  {
    loop_thread other(options_of(kind_of_loop));
    const auto break_it = [&] { return stay_in_broken_loop(counts, filtered); };
    const auto ask = [&](auto make) -> task<int> {
      try {
        co_return co_await run_on(other.loop(), make);
      } catch (const io_error& e) {
        co_return -e.code().value();
      }
    };
    spawned<int> waits(loop, fetch(other.loop(), counts, forever));
    const int first = block_on(loop, ask(break_it));
    if (!filtered) MILLRACE_SKIP("no system call can be made to fail here");
    CHECK(first == -EINVAL);
    loop.run_until([&] { return waits.done(); });
    CHECK_THROWS_AS(waits.take(), io_error);
    CHECK(block_on(loop, ask([&] { return stay(counts, duration(0), nullptr); })) == -EINVAL);
    loop.drain();
  }
  CHECK(counts.alive == 0);
  CHECK(counts.strangers == 0);
}

TEST_CASE("run_on is awaited once", "[io]") {
  const std::unique_ptr<event_loop> loop = make_event_loop();
  const auto twice = [](executor& ex) -> task<void> {
    const auto nothing = []() -> task<void> { co_return; };
    run_on once(ex, nothing);
    co_await std::move(once);
    co_await std::move(once);
  };
  CHECK_THROWS_AS(block_on(*loop, twice(*loop)), usage_error);
}

}  // namespace
