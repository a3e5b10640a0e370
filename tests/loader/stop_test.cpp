// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/pipeline_run.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/testing/jumping_loop.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/equal_batches.hpp>
#include <millrace/train/rank_group.hpp>
#include <millrace/train/tracks_advice.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

async_generator<int> count_to(int n) {
  for (int i = 0; i < n; ++i) {
    int value = i;
    co_yield give(value);
  }
}
async_generator<int> then_never(int n) {
  for (int i = 0; i < n; ++i) {
    int value = i;
    co_yield give(value);
  }
  co_await sleep_for(std::chrono::hours(1));
}
async_generator<int> then_fails(int n) {
  for (int i = 0; i < n; ++i) {
    int value = i;
    co_yield give(value);
  }
  throw decode_error("broken on purpose");
}

/// The log of a runtime.
class lines {
 public:
  runtime_options options() {
    runtime_options o;
    o.log = log_function::to<&lines::note>(*this);
    return o;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  void note(const log_record& r) {
    const std::lock_guard lock(mutex_);
    text_ += std::string(r.text) + "\n";
  }
  mutable std::mutex mutex_;
  std::string text_;
};

class seconds_since {
 public:
  double now() const { return static_cast<double>(monotonic_ns() - begun_) * 1e-9; }

 private:
  const std::int64_t begun_ = monotonic_ns();
};

/// Seconds in which a stop has come; with a sanitizer, where others keep the cores busy, more.
constexpr double soon = MILLRACE_ASAN || MILLRACE_TSAN ? 10 : 1;

/// A minute at most: what is checked afterwards fails then.
template <class Done>
void wait_until(Done done) {
  const seconds_since begun;
  while (!done() && begun.now() < 60) std::this_thread::yield();
}

void* handler_of(int number) {
  struct ::sigaction now {};
  ::sigaction(number, nullptr, &now);
  return reinterpret_cast<void*>(now.sa_handler);
}
std::atomic<int> former_calls{0};
void former(int) { ++former_calls; }

/// `former` is the handler of that signal, while this lives.
class with_former {
 public:
  explicit with_former(int number) : number_(number) {
    former_calls = 0;
    struct ::sigaction f {};
    f.sa_handler = &former;
    ::sigaction(number, &f, &before_);
  }
  ~with_former() { ::sigaction(number_, &before_, nullptr); }
  bool back() const { return handler_of(number_) == reinterpret_cast<void*>(&former); }

 private:
  const int number_;
  struct ::sigaction before_ {};
};

}  // namespace

TEST_CASE("stop() ends a run after the item that was given last") {
  runtime rt;
  auto r = rt.run(count_to(1000), {.prefetch = 3});
  CHECK(r.next() == 0);
  CHECK(r.next() == 1);
  CHECK_FALSE(r.stopped());
  CHECK_FALSE(r.stop_asked());
  r.stop();
  CHECK(r.stop_asked());
  CHECK_FALSE(r.stopped());  // next() has not said so yet
  CHECK_FALSE(r.next());
  CHECK(r.stopped());
  CHECK(r.taken() == 2);
  CHECK(r.stats().items == 2);
  r.stop();  // nothing more to do
  CHECK_FALSE(r.next());
  for (const int i : r) CHECK(i == -1);  // a loop is empty, and not refused
  for (const int i : r) CHECK(i == -1);
}

TEST_CASE("a run that is stopped before its first item gives none") {
  auto r = run(count_to(10));
  r.stop();
  for (const int i : r) CHECK(i == -1);
  CHECK(r.stopped());
  CHECK(r.taken() == 0);
}

TEST_CASE("a run that has ended was not stopped") {
  auto r = run(count_to(2));
  for (const int i : r) CHECK(i < 2);
  r.stop();
  CHECK_FALSE(r.next());
  CHECK_FALSE(r.stopped());
  CHECK_THROWS_WITH(r.begin(), Contains("a run is one pass"));
}

TEST_CASE("the item in hand stays when the run is stopped, and one that no loop has seen comes") {
  auto r = run(count_to(10));
  auto at = r.begin();
  CHECK(*at == 0);
  r.stop();
  CHECK(*at == 0);
  ++at;
  CHECK(at == r.end());

  auto other = run(count_to(10));
  other.begin();  // taken, and not seen
  other.stop();
  CHECK(other.next() == 0);
  CHECK_FALSE(other.next());
}

TEST_CASE("stop_after() ends a run after so many items, of several numbers after the lowest") {
  runtime rt;
  auto r = rt.run(count_to(1000));
  r.stop_after(7);
  r.stop_after(3);
  r.stop_after(5);
  int n = 0;
  for (const int i : r) CHECK(i == n++);
  CHECK(n == 3);
  CHECK(r.stopped());
  auto late = rt.run(count_to(1000));
  for (int i = 0; i < 4; ++i) late.next();
  late.stop_after(2);
  CHECK_FALSE(late.next());
  CHECK(late.taken() == 4);
  auto shorter = rt.run(count_to(3));
  shorter.stop_after(4);
  for (const int i : shorter) CHECK(i < 3);
  CHECK_FALSE(shorter.stopped());
}

TEST_CASE("an error is thrown, unless the run is stopped before the items in front of it are taken") {
  auto r = run(then_fails(2), {.prefetch = 4});
  CHECK(r.next() == 0);
  CHECK(r.next() == 1);
  CHECK_THROWS_AS(r.next(), decode_error);
  r.stop();
  CHECK_FALSE(r.next());
  CHECK_FALSE(r.stopped());
  auto stopped = run(then_fails(2), {.prefetch = 4});
  CHECK(stopped.next() == 0);
  stopped.stop();
  CHECK_FALSE(stopped.next());
  CHECK(stopped.stopped());
}

TEST_CASE("next() that waits returns when another thread stops the run") {
  runtime rt;
  for (int n = 0; n < 20; ++n) {
    auto r = rt.run(then_never(n % 3));
    std::thread other([&] {
      wait_until([&] { return r.taken() == static_cast<std::uint64_t>(n % 3); });
      r.stop();
      r.stop();
    });
    int items = 0;
    for (const int i : r) CHECK(i == items++);
    CHECK(items == n % 3);
    CHECK(r.stopped());
    other.join();
  }
}

TEST_CASE("stop() at any moment gives whole prefixes", "[stop]") {
  runtime rt;
  for (int n = 0; n < 200; ++n) {
    auto r = rt.run(count_to(50), {.prefetch = static_cast<std::size_t>(1 + n % 4)});
    std::thread other([&] {
      for (int spin = 0; spin < 50 * n; ++spin) std::atomic_signal_fence(std::memory_order_seq_cst);
      r.stop();
    });
    int items = 0;
    for (const int i : r) CHECK(i == items++);
    CHECK(r.taken() == static_cast<std::uint64_t>(items));
    CHECK((r.stopped() || items == 50));
    other.join();
  }
}

TEST_CASE("a run that is stopped does not wait for a function on the pool; its end does") {
  std::atomic<bool> begun{false};
  std::atomic<bool> may_end{false};
  std::atomic<bool> ended{false};
  runtime rt({.threads = 1});
  {
    auto r = rt.run(count_to(3) | map_concurrent([&](int i) {
                      begun = true;
                      while (!may_end) std::this_thread::yield();
                      ended = true;
                      return i;
                    }));
    wait_until([&] { return begun.load(); });
    const seconds_since asked;
    r.stop();
    CHECK_FALSE(r.next());
    CHECK(asked.now() < soon);
    CHECK_FALSE(ended);
    may_end = true;
  }
  CHECK(ended);
}

TEST_CASE("a stop does not wait for a function on the loop's thread") {
  std::atomic<bool> begun{false};
  std::atomic<bool> may_end{false};
  auto r = run(count_to(3) | map([&](int i) {
                 begun = true;
                 while (!may_end) std::this_thread::yield();
                 return i;
               }),
               {.stop_on = {SIGUSR2}});
  wait_until([&] { return begun.load(); });
  const seconds_since asked;
  ::raise(SIGUSR2);  // the loop cannot see it now, next() does
  CHECK_FALSE(r.next());
  CHECK(r.stopped());
  CHECK(asked.now() < soon);
  may_end = true;
}

TEST_CASE("items that were made ahead are not given after a stop") {
  std::atomic<bool> begun{false};
  std::atomic<bool> may_end{false};
  auto r = run(count_to(9) | map([&](int i) {
                 begun = i == 3;
                 while (i == 3 && !may_end) std::this_thread::yield();  // the loop cannot clear the queue
                 return i;
               }),
               {.prefetch = 3});
  CHECK(r.next() == 0);
  wait_until([&] { return begun.load(); });
  r.stop();
  CHECK_FALSE(r.next());
  CHECK(r.taken() == 1);
  may_end = true;
}

TEST_CASE("the first signal stops a run, the second has its former effect") {
  for (const bool epoll : {false, true}) {
    const with_former before(SIGUSR1);
    lines log;
    runtime_options o = log.options();
    o.force_epoll = epoll;
    runtime rt(o);
    {
      auto r = rt.run(then_never(1), {.stop_on = {SIGUSR1, SIGUSR2}});
      CHECK_FALSE(before.back());
      CHECK(r.next() == 0);
      std::thread other([&] {
        wait_until([&] { return r.taken() == 1; });
        ::kill(::getpid(), SIGUSR1);
      });
      CHECK_FALSE(r.next());
      other.join();
      CHECK(r.stopped());
      CHECK(former_calls == 0);
      CHECK(before.back());
      ::raise(SIGUSR1);
      CHECK(former_calls == 1);
      wait_until([&] { return log.text() == "millrace: SIGUSR1 asks the run to stop\n"; });
      ::raise(SIGUSR2);  // still the run's: SIGTERM may come after SIGUSR1, while the program saves
    }
    CHECK(handler_of(SIGUSR2) == reinterpret_cast<void*>(SIG_DFL));
  }
}

TEST_CASE("handlers are as before when a run has ended or is dropped, whatever the order") {
  const with_former before(SIGUSR1);
  runtime rt;
  {
    auto r = rt.run(count_to(2), {.stop_on = {SIGUSR1}});
    CHECK_FALSE(before.back());
    while (r.next()) {
    }
    CHECK(before.back());  // it has ended by itself
  }
  {
    std::optional<pipeline_run<int>> first(rt.run(then_never(1), {.stop_on = {SIGUSR1}}));
    std::optional<pipeline_run<int>> second(rt.run(then_never(1), {.stop_on = {SIGUSR1}}));
    first.reset();
    CHECK_FALSE(before.back());
    std::optional<pipeline_run<int>> third(rt.run(then_never(1), {.stop_on = {SIGUSR1}}));
    ::raise(SIGUSR1);
    CHECK(before.back());
    for (pipeline_run<int>* each : {&*second, &*third}) {
      while (each->next()) {
      }
      CHECK(each->stopped());
    }
    // One that begins now sees the next signal, and stops; the others have.
    std::optional<pipeline_run<int>> fourth(rt.run(then_never(0), {.stop_on = {SIGUSR1}}));
    CHECK_FALSE(before.back());
    second.reset();
    CHECK_FALSE(before.back());
    ::raise(SIGUSR1);
    CHECK_FALSE(fourth->next());
    CHECK(former_calls == 0);
  }
  CHECK(before.back());
  {
    auto r = rt.run(then_never(1), {.stop_on = {SIGUSR1}});
    ::signal(SIGUSR1, SIG_IGN);  // the program has another one meanwhile: that one stays
  }
  CHECK(handler_of(SIGUSR1) == reinterpret_cast<void*>(SIG_IGN));
}

#if !MILLRACE_TSAN  // its runtime delivers signals later, and so never in the child
TEST_CASE("a signal in a child of fork() has its former effect, and stops no run of the parent") {
  auto r = run(then_never(1), {.stop_on = {SIGUSR2}});
  CHECK(r.next() == 0);
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGUSR2);
    ::_exit(1);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGUSR2);
  CHECK_FALSE(r.stop_asked());
}
#endif

TEST_CASE("signals that no program goes on after are refused, and blocked ones are said") {
  lines log;
  runtime rt(log.options());
  const auto refused = [&](stop_signals s) {
    try {
      auto r = rt.run(count_to(1), {.stop_on = s});
    } catch (const configuration_error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK_THAT(refused({SIGKILL}), Contains("no program goes on after signal 9"));
  CHECK_THAT(refused({SIGTERM, SIGSEGV}), Contains("signal 11"));
  CHECK_THAT(refused({0}), Contains("1 to 64"));
  CHECK(refused({SIGTERM}) == "no error");
  CHECK(log.text().empty());
  ::sigset_t one;
  ::sigset_t before;
  ::sigemptyset(&one);
  ::sigaddset(&one, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &one, &before);
  CHECK(refused({SIGUSR1, SIGTERM}) == "no error");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  CHECK_THAT(log.text(), Contains("SIGUSR1 is to stop a run, and the thread that begins it blocks it"));
}

TEST_CASE("a task that ends stops the run, one that fails does not") {
  lines log;
  runtime rt(log.options());
  const auto told = [](bool fails) -> task<std::string> {
    co_await sleep_for(std::chrono::milliseconds(2));
    if (fails) throw io_error("the host is gone");
    co_return "the power goes";
  };
  auto r = rt.run(then_never(1));
  r.stop_when(told(true));
  CHECK(r.next() == 0);
  wait_until([&] { return !log.text().empty(); });
  CHECK_THAT(log.text(), Contains("has failed, and the run goes on: the host is gone"));
  CHECK_FALSE(r.stop_asked());
  r.stop_when(told(false));
  CHECK_FALSE(r.next());
  CHECK(r.stopped());
  wait_until([&] { return log.text().find("the run is asked to stop: the power goes") != std::string::npos; });
  r.stop_when(told(false));  // too late to matter
  CHECK_THROWS_AS(r.stop_when(task<std::string>()), usage_error);
  {
    auto dropped = rt.run(then_never(1));
    dropped.stop_when([]() -> task<std::string> {
      co_await sleep_for(std::chrono::hours(1));
      co_return "";
    }());
  }
}

TEST_CASE("a task that is to stop a run does not begin once that has ended") {
  testing::jumping_loop loop;
  run_context context;
  bool asked = false;
  const auto at_once = []() -> task<std::string> { co_return "at once"; };
  const auto ask = [&] { asked = true; };
  detail::stop_causes causes(ask);
  causes.begin(loop, context);
  causes.add(at_once());  // the loop's message is on its way
  causes.end();
  causes.add(at_once());
  loop.drain();
  block_on(loop, [](executor& ex) -> task<void> { co_await sleep_until(ex.now() + std::chrono::seconds(1)); }(loop));
  CHECK_FALSE(asked);
}

TEST_CASE("what is for any thread may be called while a run begins, gives items and ends", "[stop]") {
  runtime rt;
  const auto never = []() -> task<std::string> {
    co_await sleep_for(std::chrono::hours(1));
    co_return "";
  };
  const auto at_once = []() -> task<std::string> { co_return "at once"; };
  for (int n = 0; n < 100; ++n) {
    auto r = rt.run(count_to(20), {.prefetch = static_cast<std::size_t>(n % 3)});
    std::atomic<int> calls{0};
    std::atomic<bool> over{false};
    std::thread other([&] {
      while (!over || calls < 10) {
        r.stop_when(never());
        static_cast<void>(r.stats());
        static_cast<void>(r.stopped());
        static_cast<void>(r.stop_asked());
        static_cast<void>(r.taken());
        if (n % 2 == 0 && calls == n) r.stop_when(at_once());
        if (n % 4 == 1 && calls == n) r.stop();
        if (n % 4 == 3 && calls == n) r.stop_after(10);
        ++calls;
      }
    });
    wait_until([&] { return calls > n / 4; });
    int items = 0;
    while (r.next()) ++items;
    CHECK(r.taken() == static_cast<std::uint64_t>(items));
    CHECK((r.stopped() || items == 20));
    over = true;
    other.join();
  }
}

TEST_CASE("with equal_batches a stop of one rank ends all after the same step") {
  const std::size_t ranks = 3;
  for (const bool before : {true, false}) {
    test::thread_gather all(ranks);
    std::vector<std::size_t> steps(ranks);
    std::vector<std::string> states(ranks);
    const auto errors = test::on_ranks(ranks, [&](std::size_t r) {
      const test::tar_dataset data({40, 50, 60, 10}, 100);
      const equal_batches equal(4, uneven::pad, all.group(r));
      runtime rt;
      auto run = rt.run(epochs(dataset(data.store, "mem:"),
                               {.seed = 7,
                                .epochs = 2,
                                .batch = 4,
                                .rank = {.index = static_cast<std::uint32_t>(r), .world_size = ranks},
                                .equal = &equal}) |
                        batch());
      if (before && r == 1) run.stop();
      for (const std::vector<sample>& b : equal.of(run)) {
        if (b.size() != 4) throw usage_error("a batch of another size");
        if (++steps[r] == 5 + r && r == 1) run.stop();
      }
      if (!run.stopped()) throw usage_error("the run was not stopped");
      states[r] = run.state();
    });
    CHECK(errors == std::vector<std::string>(ranks));
    // The sum before the first step, or before the seventh, tells the others; that step is given.
    CHECK(steps == std::vector<std::size_t>(ranks, before ? 1 : 7));
  }
}

namespace {
thread_local std::int64_t clock_of_rank = 0;

/// Words of a group; a gathering takes `cost` nanoseconds of the rank's clock.
class timed_words final : public rank_words {
 public:
  timed_words(const rank_group& group, std::int64_t cost) : inner_(detail::words_of(group)), cost_(cost) {}
  std::vector<std::uint64_t> gather(std::vector<std::uint64_t> mine) const override {
    std::vector<std::uint64_t> all = inner_->gather(std::move(mine));
    clock_of_rank += cost_;
    return all;
  }
  const rank& process() const noexcept override { return inner_->process(); }

 private:
  const std::shared_ptr<const rank_words> inner_;
  const std::int64_t cost_;
};
rank rank_of(std::size_t index, std::size_t world) {
  return {.index = static_cast<std::uint32_t>(index), .world_size = static_cast<std::uint32_t>(world)};
}
}  // namespace

TEST_CASE("ranks of a group stop after the same item, asked at any time, and gather seldom") {
  const std::size_t ranks = 3;
  struct drawn {
    std::int64_t step, cost;      // nanoseconds; rank 1 takes twice as long for a step
    std::uint64_t asked;          // rank 1 after so many items
    std::uint64_t most_late;      // items after that, until all stop
    std::uint64_t most_gathered;  // in all
  };
  for (const drawn& d : {drawn{1'000'000, 20'000, 5000, 600, 40}, drawn{1'000'000'000, 20'000, 40, 1, 45},
                         drawn{1'000'000, 300'000'000, 5000, 1100, 40}, drawn{1'000'000, 1, 0, 0, 1}}) {
    test::thread_gather all(ranks);
    std::vector<std::uint64_t> items(ranks);
    const auto errors = test::on_ranks(ranks, [&](std::size_t r) {
      clock_of_rank = 0;
      detail::stop_vote vote(std::make_shared<const timed_words>(all.group(r), d.cost), [] { return clock_of_rank; });
      while (!vote.over(items[r], r == 1 && items[r] >= d.asked)) {
        ++items[r];
        clock_of_rank += r == 1 ? 2 * d.step : d.step;
      }
    });
    CHECK(errors == std::vector<std::string>(ranks));
    CHECK(items == std::vector<std::uint64_t>(ranks, items[0]));
    CHECK(items[0] >= d.asked);
    CHECK(items[0] <= d.asked + d.most_late);
    CHECK(all.gathers() <= d.most_gathered + 2);
  }
}

TEST_CASE("by a function, 4, 256 and 1,000 ranks stop within 2 s of being asked") {
  for (const std::size_t ranks : {4, 256, 1000}) {
    test::thread_gather all(ranks);
    std::vector<std::uint64_t> items(ranks);
    const std::int64_t step = 10'000'000;
    const auto errors = test::on_ranks(ranks, [&](std::size_t r) {
      clock_of_rank = 0;
      detail::stop_vote vote(
          std::make_shared<const timed_words>(all.group(r), static_cast<std::int64_t>(ranks) * 20'000),
          [] { return clock_of_rank; });
      for (; !vote.over(items[r], r == ranks / 2 && items[r] >= 300); ++items[r]) clock_of_rank += step;
    });
    CHECK(errors == std::vector<std::string>(ranks));
    CHECK(items == std::vector<std::uint64_t>(ranks, items[0]));
    CHECK(items[0] >= 300);
    CHECK(static_cast<std::int64_t>(items[0] - 300) * step < 2'000'000'000);
    CHECK(all.gathers() <= 20);
  }
}

TEST_CASE("a run whose ranks are known stops on all of them, and says it alone where they are not") {
  const std::size_t ranks = 3;
  for (std::size_t who = 0; who < ranks; ++who) {
    test::thread_gather all(ranks);
    std::vector<std::uint64_t> items(ranks);
    const auto errors = test::on_ranks(ranks, [&](std::size_t r) {
      runtime rt;
      auto run =
          rt.run(stream(count_to(1000000)).of_ranks(detail::words_of(all.group(r))) | map([](int i) { return i; }));
      for (const int i : run) {
        if (i == 3 && r == who) run.stop();
      }
      items[r] = run.taken();
      if (!run.stopped() || !run.stop_asked()) throw usage_error("the run was not stopped");
    });
    CHECK(errors == std::vector<std::string>(ranks));
    CHECK(items == std::vector<std::uint64_t>(ranks, items[0]));
    CHECK(items[0] >= 4);
    CHECK(items[0] < 20);
  }
  lines log;
  runtime rt(log.options());
  auto alone = rt.run(stream(count_to(9)).of_rank(rank_of(1, 3)), {.stop_on = {SIGUSR2}});
  CHECK_THAT(log.text(), Contains("a signal stops rank 1 of 3 by itself"));
}

TEST_CASE("ranks that take unequally many items get an error in place of a hang") {
  const std::size_t ranks = 2;
  test::thread_gather all(ranks);
  const auto errors = test::on_ranks(ranks, [&](std::size_t r) {
    detail::stop_vote vote(detail::words_of(all.group(r)));
    vote.over(0, false);
    vote.over(5 + r, false);
  });
  CHECK_THAT(errors[0], Contains("ranks have taken unequally many items of a run, rank 1 6 and this one 5"));
  CHECK_THAT(errors[1], Contains("rank 0 5 and this one 6"));
}

TEST_CASE("a training whose ranks are a group stops on all of them after the same batch, and goes on") {
  const std::size_t ranks = 3;
  const test::tar_dataset data({40, 50, 60, 10}, 100);
  std::vector<std::string> states(ranks);
  std::multiset<std::string> seen;
  std::mutex mutex;
  for (const bool stop : {true, false}) {
    test::thread_gather all(ranks);
    const auto errors = test::on_ranks(ranks, [&](std::size_t r) {
      const test::tar_dataset own({40, 50, 60, 10}, 100);
      const rank_group group = all.group(r);
      runtime rt;
      auto run = rt.run(epochs(dataset(own.store, own.indexes, {.prefix = "mem:"}),
                               {.seed = 7, .batch = 4, .ranks = group}, states[r]) |
                        batch());
      for (const std::vector<sample>& b : run) {
        const std::lock_guard lock(mutex);
        for (const sample& s : b) {
          if (s.weight() != 0) seen.insert(s.key);
        }
        if (stop && r == 2 && run.taken() == 4) run.stop();
      }
      if (run.stopped() != stop) throw usage_error("the run should have been stopped, or not");
      states[r] = run.state();
    });
    CHECK(errors == std::vector<std::string>(ranks));
    CHECK(states == std::vector<std::string>(ranks, states[0]));
    CHECK((seen.size() < 160) == stop);
  }
  const std::vector<std::string> once = data.order(7, 0, {.tracks = 3, .slice = default_slice(*data.indexes, 3)});
  CHECK(seen == std::multiset<std::string>(once.begin(), once.end()));
}
