// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The figures of the stage table: where each comes from, and in which column it stands.

#include <millrace/loader/detail/run_state.hpp>

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

TEST_CASE("a snapshot gives every stage's counters, times as shares of the time since the first item") {
  constexpr std::int64_t ms = 1'000'000;
  detail::run_metrics account;
  account.begin(1000 * ms);
  stage_record* const last = account.recorder().find_or_add("last", account.sink());
  stage_record* const first = account.recorder().find_or_add("first", last);
  stage_record* const other = account.recorder().find_or_add("other", account.sink());
  for (stage_record* r : {first, last, other}) {  // start-up
    r->busy_ns = r->pool_ns = r->starved_ns = r->asked_ns = r->blocked_ns = 900 * ms;
  }
  CHECK(account.snapshot(1900 * ms).stages[0].starved == 1);
  account.got_item(1000 * ms, 2000 * ms, 3);
  first->items = 40;
  first->failed = 2;
  first->bytes = 5000;
  last->items = 80;  // more of them, and larger: neither is what came in or was passed
  last->bytes = 7000;
  first->busy_ns += 10 * ms;
  first->pool_ns += 500 * ms;
  first->starved_ns += 40 * ms;
  first->asked_ns += 130 * ms;
  first->blocked_ns += 60 * ms;
  last->blocked_ns += 300 * ms;  // begun before
  for (std::int64_t i = 1; i <= 100; ++i) account.got_item(2100 * ms, 2100 * ms + i * 1000, 3);
  account.got_none(2190 * ms, 2195 * ms);
  account.end(2200 * ms);

  const run_stats s = account.snapshot(5000 * ms);
  REQUIRE(s.stages.size() == 3);
  CHECK(s.stages[0].name == "first");
  CHECK(s.stages[1].name == "last");
  CHECK(s.stages[2].name == "other");
  const stage_stats& f = s.stages[0];
  CHECK(f.items == 40);
  CHECK(f.failed == 2);
  CHECK(f.bytes == 5000);
  CHECK(f.busy == Approx(0.05));
  CHECK(f.pool == Approx(2.5));
  CHECK(f.starved == Approx(0.2));
  CHECK(f.waiting == Approx(0.4));
  CHECK(f.blocked == Approx(0.3));
  CHECK(s.stages[1].blocked == 1);
  CHECK(s.seconds == Approx(1.2));
  CHECK(s.first_after == Approx(1));
  CHECK(s.bytes == 5000);
  CHECK(s.items == 101);
  CHECK(s.samples == 303);
  CHECK(s.waited == Approx((5.05 + 5) / 200));
  CHECK(s.next_max_ns == 100'000);
  CHECK(s.next_p50_ns >= 50'000);
  CHECK(s.next_p50_ns <= 55'000);
  first->read = 6000;
  CHECK(account.snapshot(5000 * ms).bytes == 6000);
}

TEST_CASE("the time to the first item names no bottleneck") {
  constexpr std::int64_t ms = 1'000'000;
  detail::run_metrics account;
  account.begin(1 * ms);
  stage_record* const decode = account.recorder().find_or_add("decode", account.sink());
  decode->asked_ns = 320 * ms;
  account.got_item(1 * ms, 321 * ms, 0);
  for (std::int64_t step = 1; step <= 20; ++step) account.got_item((321 + 50 * step) * ms, (321 + 50 * step) * ms, 0);
  const run_stats s = account.snapshot(1371 * ms);
  CHECK(s.first_after == Approx(0.32));
  CHECK(s.waited == 0);
  CHECK_THAT(s.verdict(), Contains("the training thread is the bottleneck"));
  CHECK_THAT(s.table(), Contains("training thread: 21 items (15/s) in 1.37 s, the first after 0.32 s\n") &&
                            Contains("next item: p50 0.00 ms, p99 0.00 ms, max 0.00 ms; waited 0.0% of 1.05 s\n"));
}

TEST_CASE("the training thread waits for no more than the whole time") {
  detail::run_metrics account;
  account.begin(10);
  account.got_item(10, 20, 0);
  account.got_none(30, 3'600'000'000'000);  // it woke up long after the end
  account.end(50);
  CHECK(account.snapshot(100).waited == 1);
}

TEST_CASE("the table has a column for each figure, and the training thread's figures under it") {
  run_stats s;
  s.seconds = 2.5;
  s.first_after = 0.5;
  s.items = 30;
  s.samples = 7680;
  s.bytes = 5'000'000;
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
               "fetch                  400        160    2.40 MB    1.2%   1.50x     3.4%    56.0%     7.8%\n") &&
          Contains("fetch left out 3 of 403 items that failed\n") &&
          Contains("training thread: 30 batches, 7.68k samples (3.07k/s), 2.00 MB/s in 2.50 s, the first after "
                   "0.50 s\n"
                   "next item: p50 1.50 ms, p99 20.25 ms, max 300.00 ms; waited 25.0% of 2.00 s; without "
                   "waiting 1.3 times as fast\n"));
  s.stages[0].name = "map_concurrent #12";
  CHECK_THAT(s.table(), Contains("stage                  items ") && Contains("map_concurrent #12       400 "));
}
