// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/metrics_clock.hpp>

#include "tests/support/catch.hpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

/// How long a stage computes for its n-th item.
using cost = duration (*)(int n);

async_generator<int> source(int count, cost c) {
  for (int i = 0; i < count; ++i) {
    co_await compute_for(c(i));
    int item = i;
    co_yield give(item);
  }
}
async_generator<int> relay(async_generator<int> in, cost before, cost after, duration wait, int every) {
  while (int* const item = co_await in.next_in_place()) {
    co_await compute_for(before(*item));
    if (*item % every == every - 1) co_await virtual_sleep(wait);
    const int number = *item;
    co_yield give(*item);
    co_await compute_for(after(number));
  }
}
task<void> sink(async_generator<int> in, cost c) {
  while (int* const item = co_await in.next_in_place()) co_await compute_for(c(*item));
}

/// What the stages of one pipeline have come to, in ms: sink first.
struct outcome {
  std::vector<double> busy, starved, asked, blocked;
  double elapsed = 0;
};

struct pipeline {
  int items;
  cost source_cost;
  cost relay_before;
  cost relay_after;
  duration wait;  // in the relay, before every 1000th item
  cost sink_cost;
};
outcome run(const pipeline& p, unsigned turns) {
  testing::virtual_loop loop;
  loop.sample_metrics(turns);
  loop.set_inline_budget(16);  // many turns of few items
  stage_recorder recorder;
  auto g = relay(as_stage("source", source(p.items, p.source_cost)), p.relay_before, p.relay_after, p.wait, 1000);
  block_on({loop, recorder.find_or_add("sink", nullptr)}, sink(as_stage("relay", std::move(g)), p.sink_cost));
  outcome result;
  recorder.for_each([&](const stage_record& r) {
    const auto ms = [](const stage_record::counter& c) { return static_cast<double>(c.load()) / 1e6; };
    result.busy.push_back(ms(r.busy_ns));
    result.starved.push_back(ms(r.starved_ns));
    result.asked.push_back(ms(r.asked_ns));
    result.blocked.push_back(ms(r.blocked_ns));
    if (r.name != std::string("sink")) CHECK(r.items == p.items);
  });
  result.elapsed = static_cast<double>(loop.elapsed().count()) / 1e6;
  return result;
}

/// The most by which two accounts differ, in % of the whole time.
double apart(const outcome& exact, const outcome& sampled) {
  double most = 0;
  const auto look = [&](const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) most = std::fmax(most, 100 * std::fabs(a[i] - b[i]) / exact.elapsed);
  };
  look(exact.busy, sampled.busy);
  look(exact.starved, sampled.starved);
  look(exact.asked, sampled.asked);
  look(exact.blocked, sampled.blocked);
  return most;
}

duration nothing(int) { return 0ns; }

duration short_steps(int n) { return n % 100 == 7 ? 1us : n % 10 == 3 ? 500ns : 20ns; }
duration long_steps(int n) { return n % 100 == 7 ? 30us : 3us; }

}  // namespace

TEST_CASE("an account that is sampled is right to 1% of the time") {
  const cost five = [](int) { return duration(5ns); };
  const cost twenty = [](int) { return duration(20ns); };
  pipeline p{300000, five, twenty, nothing, 0ns, five};
  SECTION("short steps, always the same") {}
  SECTION("short steps, some longer") { p.relay_before = short_steps; }
  SECTION("the same in the source") { p.source_cost = short_steps; }
  SECTION("work between yielding and asking") {
    p.relay_before = five;
    p.relay_after = short_steps;
  }
  SECTION("a stage that waits") { p.wait = 20us; }
  SECTION("a consumer that works for every 256th item") {
    p.sink_cost = [](int n) { return n % 256 == 0 ? duration(400us) : duration(3ns); };
  }
  SECTION("a stage that works long once in a while") {
    p.source_cost = [](int n) { return n % 100000 == 99999 ? duration(105us) : duration(50ns); };
  }
  SECTION("long steps") {
    p.items = 60000;
    p.source_cost = long_steps;
  }
  const outcome exact = run(p, 1);
  const outcome sampled = run(p, 32);
  CHECK(exact.elapsed == sampled.elapsed);
  CAPTURE(exact.busy, sampled.busy, exact.starved, sampled.starved, exact.blocked, sampled.blocked);
  CHECK(apart(exact, sampled) < 1);
}

namespace {

/// Turns of one length, one after another; how many of them are measured.
class turns {
 public:
  explicit turns(unsigned sampled) { clock_.sample(sampled); }
  int measured(int count, duration length) {
    int sum = 0;
    for (int i = 0; i < count; ++i) {
      const auto preempted = [this] { return preemptions; };
      clock_.begin_turn(now_, preempted);
      sum += clock_.stopped() ? 0 : 1;
      now_ += length.count();
      if (!clock_.stopped()) charged += clock_.read(now_);
      charged += clock_.end_turn(now_, preempted);
    }
    return sum;
  }
  std::int64_t charged = 0;
  std::int64_t preemptions = 0;

 private:
  metrics_clock clock_;
  std::int64_t now_ = 1'000'000'000;
};

}  // namespace

TEST_CASE("one turn of so many is measured, and the first ones of a loop") {
  turns t(32);
  CHECK(t.measured(2000, 1us) == 2000);
  CHECK(std::abs(t.measured(32000, 1us) - 1000) <= 1);
  turns all(1);
  CHECK(all.measured(32000, 1us) == 32000);
}

TEST_CASE("what turns took that were not measured is charged to those that are, but for a few turns' time") {
  turns t(32);
  t.measured(100000, 1us);
  CHECK(t.charged <= 100000'000);
  CHECK(t.charged > 99500'000);
  t.measured(100000, 3us);
  CHECK(t.charged <= 400000'000);
  CHECK(t.charged > 399000'000);
}

TEST_CASE("after a long turn everything is measured for a hundred times as long, and on while turns are long") {
  turns t(32);
  t.measured(5000, 1us);
  t.measured(1, 200us);
  CHECK(t.measured(19999, 1us) == 19999);
  CHECK(t.measured(32000, 1us) <= 1002);
  CHECK(t.measured(1000, 200us) >= 999);
}

TEST_CASE("turns that are long because the thread was preempted change nothing") {
  turns t(32);
  t.measured(5000, 1us);
  for (int i = 0; i < 10; ++i) {
    ++t.preemptions;
    CHECK(t.measured(1, 4ms) <= 1);
    CHECK(t.measured(3200, 1us) <= 101);
  }
  ++t.preemptions;
  t.measured(2, 4ms);  // one of them for another reason
  CHECK(t.measured(3200, 1us) == 3200);
}
