// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The figures of the stage table: where each comes from, and in which column it stands.

#include <millrace/loader/detail/run_account.hpp>

#include <cstdint>
#include <string>

#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

TEST_CASE("quantiles of the waits are exact but for the width of a bucket") {
  detail::latency_histogram waits;
  CHECK(waits.quantile(0.5) == 0);
  for (std::int64_t i = 1000; i > 0; --i) waits.add(i * 1000);
  CHECK(waits.count() == 1000);
  CHECK(waits.max() == 1'000'000);
  for (const double q : {0.01, 0.5, 0.9, 0.99}) {
    const double exact = q * 1'000'000;
    CHECK(static_cast<double>(waits.quantile(q)) >= exact);
    CHECK(static_cast<double>(waits.quantile(q)) <= (exact + 1000) * (1 + 1.0 / 16));
  }
  CHECK(waits.quantile(1) == 1'000'000);
  detail::latency_histogram few;
  for (const std::int64_t ns : {0, 3, 15}) few.add(ns);
  CHECK(few.quantile(0.5) == 3);
}

TEST_CASE("a snapshot gives every stage's counters, times as shares of the run") {
  detail::run_account<> account;
  account.begin();
  stage_record* const last = account.recorder().find_or_add("last", account.sink());
  stage_record* const first = account.recorder().find_or_add("first", last);
  const std::int64_t began = monotonic_ns();
  while (monotonic_ns() - began < 6'000'000) continue;  // longer than what is waited in it
  account.end();
  first->items = 40;
  first->failed = 2;
  first->bytes = 7000;
  first->busy_ns = 100;
  first->pool_ns = 200;
  first->starved_ns = 400;
  first->asked_ns = 1300;
  first->blocked_ns = 1600;
  last->bytes = 5000;
  for (std::int64_t i = 1; i <= 100; ++i) account.add_wait(i * 1000, true);
  account.add_wait(5000, false);  // for the end

  const run_stats s = account.snapshot();
  REQUIRE(s.stages.size() == 2);
  CHECK(s.stages[0].name == "first");
  CHECK(s.stages[1].name == "last");
  const stage_stats& f = s.stages[0];
  CHECK(f.items == 40);
  CHECK(f.failed == 2);
  CHECK(f.bytes == 7000);
  const double run = s.seconds * 1e9;
  CHECK(run >= 6'000'000);
  CHECK(f.busy * run == Approx(100));
  CHECK(f.pool * run == Approx(200));
  CHECK(f.starved * run == Approx(400));
  CHECK(f.waiting * run == Approx(1300 - 400 - 100));
  CHECK(f.blocked * run == Approx(1600));
  CHECK(s.bytes == 7000);
  CHECK(s.items == 100);
  CHECK(s.waited * run == Approx(5'050'000 + 5000));
  CHECK(static_cast<double>(s.next_p50_ns) == Approx(51'000).epsilon(0.07));
  CHECK(static_cast<double>(s.next_p99_ns) == Approx(100'000).epsilon(0.07));
  CHECK(s.next_max_ns == 100'000);
}

TEST_CASE("the table has a column for each figure, and the time to the next item under it") {
  run_stats s;
  s.seconds = 2;
  s.items = 30;
  s.waited = 0.25;
  s.next_p50_ns = 1'500'000;
  s.next_p99_ns = 20'250'000;
  s.next_max_ns = 300'000'000;
  stage_stats fetch;
  fetch.name = "fetch";
  fetch.items = 400;
  fetch.bytes = 6'000'000;
  fetch.busy = 0.012;
  fetch.pool = 1.5;
  fetch.starved = 0.034;
  fetch.waiting = 0.56;
  fetch.blocked = 0.078;
  fetch.failed = 3;
  s.stages.push_back(fetch);
  CHECK_THAT(
      s.table(),
      Contains("stage                items    items/s    bytes/s    busy    pool  starved  waiting  blocked\n"
               "fetch                  400        200    3.00 MB    1.2%   1.50x     3.4%    56.0%     7.8%\n") &&
          Contains("fetch left out 3 of 403 items that failed\n") &&
          Contains("next item: p50 1.50 ms, p99 20.25 ms, max 300.00 ms; training thread waited 25.0% of 2.00 s\n"));
}
