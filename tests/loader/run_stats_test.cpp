// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/run_stats.hpp>

#include <string>
#include <utility>

#include <millrace/flow/map.hpp>
#include <millrace/flow/named.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/run.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

stage_stats stage(const char* name, double busy, double waiting, double pool = 0) {
  stage_stats s;
  s.name = name;
  s.busy = busy;
  s.waiting = waiting;
  s.pool = pool;
  return s;
}

/// A run whose training thread waited for most of it.
run_stats starving() {
  run_stats s;
  s.seconds = 1;
  s.items = 1000;
  s.waited = 0.9;
  return s;
}

async_generator<int> numbers(int n) {
  for (int i = 0; i < n; ++i) {
    int value = i;
    co_yield give(value);
  }
}

template <class T>
run_stats after_all(async_generator<T> pipeline) {
  auto r = run(std::move(pipeline));
  while (r.next()) continue;
  return r.stats();
}

}  // namespace

TEST_CASE("the verdict names the stage that holds the run back") {
  run_stats s = starving();
  s.stages = {stage("fetch", 0.1, 0.7), stage("decode", 0.2, 0.1)};
  CHECK(s.verdict() == "bottleneck: fetch waits for its own I/O: raise its window or its limit");
  s.stages = {stage("fetch", 0.1, 0.1), stage("decode", 0.1, 0.6, 1.9)};
  CHECK(s.verdict() == "bottleneck: decode (its pool jobs): more cores, or less work per item");
  s.stages = {stage("fetch", 0.1, 0.1), stage("decode", 0.2, 0.5, 0.1)};
  CHECK(s.verdict() == "bottleneck: decode waits for its pool jobs, whose threads get no core or have other jobs");
  s.stages = {stage("fetch", 0.1, 0.1), stage("decode", 0.6, 0.1)};
  CHECK(s.verdict() == "bottleneck: decode");
  s.stages = {stage("fetch", 0.3, 0), stage("decode", 0.65, 0)};
  CHECK_THAT(s.verdict(), Contains("the loop thread is full, most of all by decode"));
  s.waited = 0.04;
  CHECK_THAT(s.verdict(), Contains("the training thread is the bottleneck"));
}

TEST_CASE("no stage has a name: the verdict says so, and what would help") {
  run_stats s = starving();
  CHECK(s.verdict() == "the pipeline is the bottleneck, and none of its stages has a name: give them one by named()");
  s.stages = {stage("idle", 0, 0)};  // named, but it took no time
  CHECK_THAT(s.verdict(), Contains("the pipeline is the bottleneck") && !Contains("none of its stages has a name"));
}

TEST_CASE("before the first item the verdict blames nobody") {
  run_stats s;
  CHECK(s.verdict() == "the training thread has taken no item yet");
  s = starving();
  s.items = 0;
  CHECK(s.verdict() == "the pipeline has given no item yet");
  s.stages = {stage("fetch", 0, 0.9)};  // it is known who is slow
  CHECK_THAT(s.verdict(), Contains("fetch"));
}

TEST_CASE("a run of unnamed stages says what is true, named ones are in the table") {
  const run_stats unnamed = after_all(numbers(1000));
  CHECK(unnamed.items == 1000);
  CHECK(unnamed.stages.empty());
  CHECK_THAT(unnamed.table(), !Contains("nothing has run") && !Contains("no item"));
  const run_stats named_one = after_all(numbers(1000) | named("double", map([](int i) { return 2 * i; })));
  CHECK(named_one.stages.size() == 1);
  CHECK_THAT(named_one.table(), Contains("double"));
}

TEST_CASE("the training thread waits for no more than the whole run") {
  detail::run_account<> account;
  account.begin();
  account.add_wait(3'600'000'000'000, false);  // it woke up long after the end
  while (account.snapshot().seconds <= 0) continue;
  account.end();
  CHECK(account.snapshot().waited == 1);
}
