// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/fetch.hpp>

#include <chrono>
#include <string>

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
  o.seconds = 90;
  check("no bound", o);
}

TEST_CASE("a fleet follows a store that takes half as many requests, or twice as many", "[fleet]") {
  for (const double factor : {0.5, 2.0}) {
    fleet_options o = small(30e6);
    o.seconds = 60;
    o.later_limit = factor * o.limit;
    check(factor < 1 ? "half" : "twice", o);
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

TEST_CASE("the patience with a store that refuses everything ends", "[fleet]") {
  fleet_options o = small(30e6);
  o.ranks = 2;
  o.limit = 0.001;
  o.burst = 0;
  o.retry.patience = 20s;
  const fleet_result r = run_fleet(o);
  CHECK(r.dead == 2);
  CHECK(r.why.find("SlowDown") != std::string::npos);
  CHECK(r.requests < 400);
}

TEST_CASE("256 and 1,000 ranks share the 5,500 requests a second of a prefix", "[fleet][slow]") {
  for (const int ranks : {256, 1000}) {
    for (const double demand : {3e6, 10e6, 30e6, 0.0}) {
      for (const double burst : {0.1, 5.0}) {
        fleet_options o;
        o.ranks = ranks;
        o.demand = demand;
        o.burst = burst;
        check("steady", o);
      }
    }
  }
}
