// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/run_stats.hpp>

#include <string>
#include <utility>

#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/named.hpp>
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
run_stats after_all(stream<T> pipeline) {
  auto r = run(std::move(pipeline));
  while (r.next()) continue;
  return r.stats();
}

}  // namespace

TEST_CASE("the verdict names the stage that holds the run back") {
  run_stats s = starving();
  s.stages = {stage("fetch", 0.1, 0.7), stage("decode", 0.2, 0.1)};
  s.stages[0].advice = "raise its .window";
  CHECK(s.verdict() == "bottleneck: fetch waits for its own I/O: raise its .window");
  s.stages[0].advice = "";
  CHECK(s.verdict() == "bottleneck: fetch waits for its own I/O");
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

TEST_CASE("a stage is told of options that it has") {
  run_stats s = starving();
  s.stages = {stage("mine", 0.1, 0.7)};
  CHECK(s.verdict() ==
        "bottleneck: mine waits for its own I/O: let more of it be under way at once, by map_concurrent()");
  const auto text = [](int) -> task<int> { co_return 1; };
  const run_stats made = after_all(numbers(20) | named("mine", map(text)) | named("tasks", map_concurrent(text)));
  REQUIRE(made.stages.size() == 3);
  CHECK(made.stages[1].advice == nullptr);
  CHECK(made.stages[2].advice == std::string("raise its .limit"));
}

TEST_CASE("no stage shows what holds the run back: the verdict says so") {
  run_stats s = starving();
  CHECK(s.verdict() == "the pipeline is the bottleneck, and no stage of it shows why");
  s.stages = {stage("idle", 0, 0)};
  CHECK(s.verdict() == "the pipeline is the bottleneck, and no stage of it shows why");
}

TEST_CASE("too short a run blames nobody") {
  run_stats s;
  CHECK(s.verdict() == "the training thread has taken no item");
  s = starving();
  s.stages = {stage("fetch", 0.1, 0.9)};
  s.items = 0;
  CHECK(s.verdict() == "the training thread has taken no item");
  s.items = 1;
  CHECK(s.verdict() == "too short to tell what holds the run back: 1.00 s since the first item");
  s.items = 8;
  CHECK_THAT(s.verdict(), Contains("too short to tell"));
  s.waited = 0.01;
  CHECK(s.verdict() == "the training thread was not kept waiting after the first item");
  s.waited = 0.9;
  s.items = 1000;
  CHECK_THAT(s.verdict(), Contains("fetch"));
  s.first_after = 0.95;
  CHECK_THAT(s.verdict(), Contains("too short to tell"));
  s.items = 3;
  s.seconds = 10;  // slow, but there was time enough
  CHECK_THAT(s.verdict(), Contains("fetch"));
}
