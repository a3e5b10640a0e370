// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/fetch.hpp>

#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/fleet.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using millrace::test::fleet_options;
using millrace::test::fleet_result;
using millrace::test::run_fleet;

namespace {

void check(const char* cell, const fleet_options& o) {
  const fleet_result r = run_fleet(o);
  INFO(cell << ": " << o.ranks << " ranks at " << 1e-6 * o.demand << " MB/s: goodput " << r.goodput << ", Jain "
            << r.jain << ", refused " << r.refused << ", parts of " << r.mean_part / static_cast<double>(MiB)
            << " MiB, dead " << r.dead << " " << r.why);
  CHECK(r.dead == 0);
  CHECK(r.goodput >= 0.9);
  CHECK(r.jain >= 0.95);
}

/// Few ranks for as many requests of each as a thousand have in 5,500 a second.
fleet_options small(double demand) {
  fleet_options o;
  o.ranks = 16;
  o.limit = 5.5 * o.ranks;
  o.demand = demand;
  return o;
}

}  // namespace

TEST_CASE("a fleet that asks for more than the store takes gets it all, each rank its share", "[fleet]") {
  for (const double demand : {3e6, 30e6}) {
    for (const double burst : {0.1, 5.0}) {
      fleet_options o = small(demand);
      o.burst = burst;
      check("steady", o);
    }
  }
  fleet_options o = small(0);
  o.seconds = 180;
  check("no bound", o);
}

TEST_CASE("a fleet follows a store that takes half as many requests, or twice as many", "[fleet]") {
  for (const double factor : {0.5, 2.0}) {
    fleet_options o = small(30e6);
    o.seconds = 60;
    o.later_limit = factor * o.limit;
    check(factor < 1 ? "half" : "twice", o);
  }
  fleet_options o = small(0);  // the ranks take all that comes: their rates become alike again
  o.ranks = 32;
  o.limit *= 2;
  o.seconds = 90;
  o.later_limit = 2 * o.limit;
  check("no bound, twice", o);
}

TEST_CASE("ranks that read in step do not ask in step", "[fleet]") {
  fleet_options o;
  o.ranks = 64;
  o.limit = 320;  // all at once are twice the burst; they need a fifth of it
  o.demand = 3e6;
  o.seconds = 45;
  const fleet_result r = run_fleet(o);
  CHECK(r.goodput > 0.95);
  CHECK(r.refused < 0.03);
}

TEST_CASE("ranks that start again do not slow the others", "[fleet]") {
  fleet_options o = small(20e6);
  o.ranks = 20;
  testing::store_model store(o.store());
  millrace::test::fleet all(o, store, millrace::test::fleet_fetch(fleet_objects(store, o, 2e9), o.fetch));
  const auto of_others = [&] {  // in ten seconds
    all.mark();
    all.run_for(10);
    const std::vector<double> rates = all.stretch().rates;
    return std::accumulate(rates.begin() + 2, rates.end(), 0.0);
  };
  all.run_for(30);
  const double before = of_others();
  all.restart(0);
  all.restart(1);
  CHECK(of_others() > 0.98 * before);
  for (const millrace::test::fleet_rank& r : all.ranks()) CHECK(r.error == "");
  CHECK(all.ranks()[0].bytes > 0);
}

TEST_CASE("one refusal as it starts does not slow a client beside a store that is well", "[fleet]") {
  const auto rate = [](std::uint64_t stray) {  // six seconds are few late parts: the mean of many
    double sum = 0;
    for (std::uint64_t seed = 1; seed <= 16; ++seed) {
      fleet_options o;
      o.ranks = 1;
      o.seconds = 6;
      o.stray = stray;
      o.seed = seed;
      sum += run_fleet(o).mean_rate;
    }
    return sum;
  };
  const double undisturbed = rate(0);
  for (const std::uint64_t stray : {1, 3, 20}) {
    INFO("request " << stray);
    CHECK(rate(stray) > 0.85 * undisturbed);
  }
}

TEST_CASE("under refusals parts are as long as .part allows", "[fleet]") {
  fleet_options o = small(40e6);
  o.object = 1'400'000'000;
  const fleet_result usual = run_fleet(o);
  CHECK(usual.mean_part > 7.5 * MiB);
  o.fetch.part = 32 * MiB;
  const fleet_result longer = run_fleet(o);
  CHECK(longer.dead == 0);
  CHECK(longer.requests < usual.requests / 2);
  CHECK(longer.goodput > 0.95);
}

TEST_CASE("ranks that take less than the store gives ask for few long parts, and wait for none", "[fleet]") {
  fleet_options o;
  o.limit = 1e9;
  for (const double demand : {3e6, 28e6, 100e6}) {
    o.demand = demand;
    const fleet_result r = run_fleet(o);
    INFO(1e-6 * demand << " MB/s: parts of " << r.mean_part / static_cast<double>(MiB) << " MiB");
    CHECK(r.goodput > 0.98);
    CHECK(r.mean_part >= (demand < 10e6 ? 4.0 : 6.0) * MiB);  // the highest rate would take 2
  }
}

TEST_CASE("the patience with a store that refuses everything ends", "[fleet]") {
  fleet_options o = small(30e6);
  o.ranks = 2;
  o.seconds = 60;  // each of the requests that wait for their turn finds out when it comes
  o.limit = 0.001;
  o.burst = 0;
  o.retry.patience = 20s;
  const fleet_result r = run_fleet(o);
  CHECK(r.dead == 2);
  CHECK(r.why.find("SlowDown") != std::string::npos);
  CHECK(r.requests < 400);
}

// bench/fleet_bench has all numbers of ranks, rates and bursts.
TEST_CASE("64, 256 and 1,000 ranks share the 5,500 requests a second of a prefix", "[fleet][slow]") {
  for (const double demand : {3e6, 30e6}) {
    fleet_options o;
    o.ranks = 1000;
    o.demand = demand;
    check("steady", o);
  }
  for (const int ranks : {64, 256}) {
    if (ranks > 64 && (MILLRACE_ASAN || MILLRACE_TSAN)) continue;  // minutes each
    fleet_options o;
    o.ranks = ranks;
    // A share of 86 requests a second, and later of twice as many, takes more memory than the default.
    if (ranks == 64) o.fetch.window = 96 * MiB;
    o.seconds = 60;
    for (const double factor : {0.5, 2.0}) {
      o.later_limit = factor * o.limit;
      check(factor < 1 ? "no bound, half" : "no bound, twice", o);
    }
  }
}
