// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/hedged_storage.hpp>

#include <millrace/base/compiler.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/fleet_steps.hpp"

using namespace millrace;
using millrace::test::run_steps;
using millrace::test::steps_options;
using millrace::test::steps_result;

namespace {

void check(int ranks, double rate, double lost, double seconds = 30) {
  steps_options o;
  o.ranks = ranks;
  o.rate = rate;
  o.seconds = seconds;
  const steps_result r = run_steps(o);
  INFO(ranks << " ranks at " << 1e-6 * rate << " MB/s: lost " << r.lost << " of the time, at most " << r.worst
             << " s a step, " << r.extra << " more requests, " << r.steps << " steps");
  CHECK(static_cast<double>(r.steps) * o.step > 0.75 * seconds);
  CHECK(r.lost <= lost);
  CHECK(r.extra <= 0.02);
}

}  // namespace

TEST_CASE("a step of all ranks does not wait for one slow request", "[fleet]") {
  check(32, 100e6, 0.01, 15);
  check(32, 200e6, 0.01, 15);
  steps_options alone;
  alone.ranks = 32;
  alone.rate = 200e6;
  alone.seconds = 15;
  alone.hedges = 0;
  const steps_result waiting = run_steps(alone);
  CHECK(waiting.lost > 0.05);
  CHECK(waiting.extra == 0);
}

TEST_CASE("256 and 1,000 ranks wait for few requests", "[fleet][slow]") {
  check(256, 200e6, 0.01, 15);
  check(1000, 28e6, 0.001, 15);
}
