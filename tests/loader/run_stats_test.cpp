// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/run_stats.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/units.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
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
run_stats after_all(stream<T> pipeline, const runtime_options& made_of = {}) {
  auto r = run(std::move(pipeline), {}, made_of);
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

TEST_CASE("the verdict says what a stage that reads by ranges has chosen, and what its limit is") {
  run_stats s = starving();
  s.stages = {stage("fetch", 0.1, 0.7), stage("decode", 0.2, 0.1)};
  s.stages[0].advice = "raise its .window";
  s.stages[0].reads = 64;
  s.stages[0].read_part = 1 * MiB;
  CHECK(s.verdict() == "bottleneck: fetch waits for its own I/O: 64 requests of up to 1.05 MB at a time");
  s.stages[0].limit = read_limit::memory;
  CHECK(s.verdict() ==
        "bottleneck: fetch waits for its own I/O: 64 requests of up to 1.05 MB at a time are as many as its memory "
        "holds: raise its .window");
  s.stages[0].limit = read_limit::requests;
  CHECK(s.verdict() ==
        "bottleneck: fetch waits for its own I/O: 64 requests of up to 1.05 MB at a time are as many as it may "
        "have, and the store's rate of a connection is the limit: raise its .requests");
  s.stages[0].limit = read_limit::link;
  CHECK(s.verdict() ==
        "bottleneck: fetch waits for its own I/O: with 64 requests of up to 1.05 MB at a time the link, or what the "
        "store sends in all, is the limit");
  s.stages[0].read_first_byte = 0.0152;
  s.stages[0].read_rate = 30e6;
  CHECK(s.verdict() ==
        "bottleneck: fetch waits for its own I/O: with 64 requests of up to 1.05 MB at a time (15.2 ms to the first "
        "byte, 30.0 MB/s on a connection) the link, or what the store sends in all, is the limit");
  s.waited = 0.01;
  CHECK_THAT(s.verdict(), Contains("the training thread is the bottleneck"));
}

TEST_CASE("the verdict names options that the stage has") {
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

namespace {

/// A function that takes a millisecond of a pool's thread.
const auto work = [](int i) {
  const std::int64_t begun = monotonic_ns();
  while (monotonic_ns() - begun < 1'000'000) continue;
  return i;
};
constexpr int enough = 160;  // of them for a verdict, also where several run at once

/// An item that says its size, and a function that makes one.
struct heavy {
  explicit heavy(int i) : id(i) {}
  int id;
};
std::size_t byte_size(const heavy&) { return MiB; }

struct row {
  std::int64_t id;
};
void collate(const row& r, sample_writer& out) {
  out.write("id", r.id);
  work(0);
}

}  // namespace

TEST_CASE("what bounds the jobs on a pool is named, with the option that changes it") {
  const unsigned cores = cpu_pool::usable_cores();
  cpu_pool four(4);
  SECTION("the stage's .limit") {
    const auto of = [&](std::size_t limit, const runtime_options& o = {}) {
      map_concurrent_options with{.limit = limit};
      if (o.threads == 0) with.on = four;
      return after_all(numbers(static_cast<int>(limit) * enough) | map_concurrent(work, with), o).verdict();
    };
    CHECK(of(1) ==
          "bottleneck: map_concurrent waits for its pool jobs, of which one is under way at a time, on 4 threads: "
          "raise its .limit");
    CHECK_THAT(of(2), Contains("at most 2 are under way at once, on 4 threads: raise its .limit"));
    CHECK_THAT(of(1, {.threads = 4}), Contains("one is under way at a time, on 4 threads: raise its .limit"));
  }
  SECTION("that of fill_batches()") {
    const batch_pool memory(batch_layout(4, {{"id", dtype::i64}}));
    const auto fill = [](int i, const batch_row& to) { to.set("id", static_cast<std::int64_t>(work(i))); };
    CHECK_THAT(after_all(numbers(enough) | fill_batches(memory, fill, {.on = four, .limit = 1})).verdict(),
               Contains("on 4 threads: raise its .limit"));
  }
  SECTION("its .bytes") {
    const auto make = [](int i) { return heavy(work(i)); };
    CHECK_THAT(
        after_all(numbers(enough) | map_concurrent(make, {.limit = 8, .on = four, .bytes = MiB})).verdict(),
        Contains("few fit into its bound in bytes: raise its .bytes"));
    CHECK_THAT(
        after_all(numbers(4 * enough) | map_concurrent(make, {.limit = 32, .on = four, .bytes = 256 * MiB})).verdict(),
        !Contains(".bytes"));
  }
  SECTION("a pool that is smaller than the machine") {
    cpu_pool small(1);
    const std::string given = after_all(numbers(enough) | map_concurrent(work, {.limit = 64, .on = small})).verdict();
    const auto plain = map_concurrent(work, {.limit = 64});
    const std::string of_runtime = after_all(numbers(enough) | plain, {.threads = 1}).verdict();
    if (cores > 1) {
      CHECK_THAT(given, Contains("the pool's 1 thread is busy and there are") && Contains("larger pool as .on"));
      CHECK_THAT(of_runtime, Contains("raise runtime_options::threads"));
    } else {
      CHECK_THAT(given, Contains("more cores"));
      CHECK_THAT(of_runtime, Contains("more cores"));
    }
  }
  SECTION("the machine") {
    CHECK(after_all(numbers(static_cast<int>(cores) * enough) | map_concurrent(work, {.limit = 256})).verdict() ==
          "bottleneck: map_concurrent (its pool jobs): more cores, or less work per item");
  }
  SECTION("to_device(), which lays one batch out at a time") {
    const auto rows = [](int i) { return row{i}; };
    CHECK_THAT(after_all(numbers(enough) | map(rows) | batch(2) | to_device(host_device(), {.on = four})).verdict(),
               Contains("to_device waits for its pool jobs, of which one is under way at a time, on 4 threads: lay the "
                        "batches out before it, by fill_batches()"));
  }
}

TEST_CASE("the verdict on what a stage waits for names options of that stage", "[slow]") {
  const auto wait = [](int i) -> task<int> {
    co_await sleep_for(std::chrono::milliseconds(1));
    co_return i;
  };
  CHECK_THAT(after_all(numbers(enough) | map_concurrent(wait, {.limit = 1})).verdict(),
             Contains("map_concurrent waits for its own I/O: raise its .limit"));
  const auto make = [](int i) -> task<heavy> {
    co_await sleep_for(std::chrono::milliseconds(1));
    co_return heavy(i);
  };
  CHECK_THAT(after_all(numbers(enough) | map_concurrent(make, {.limit = 8, .bytes = MiB})).verdict(),
             Contains("map_concurrent waits for its own I/O: raise its .bytes"));
  CHECK_THAT(after_all(numbers(enough) | map(wait)).verdict(), Contains("by map_concurrent()"));
}

TEST_CASE("for a full loop the verdict names the option of the runtime's loops") {
  run_stats s = starving();
  s.stages = {stage("fetch", 0.2, 0), stage("map", 0.75, 0)};
  CHECK(s.verdict() ==
        "the loop thread is full, most of all by map: move work to the pool, by map_concurrent(), or where it is "
        "transfers, to more loops, by runtime_options::loops");
}

TEST_CASE("for a busy pool the verdict names the stage that uses it most") {
  run_stats s = starving();
  s.stages = {stage("decode", 0.1, 0.3, 1.8), stage("augment", 0.1, 0.6, 0.1)};
  for (stage_stats& each : s.stages) {
    each.pool_threads = 2;
    each.pool_cores = 2;
  }
  CHECK(s.verdict() ==
        "bottleneck: augment waits for its pool jobs: the pool's 2 threads are busy, most of all with those of decode: "
        "more cores, or less work");
  s.stages[0].pool_given = true;  // another pool
  CHECK(s.verdict() == "bottleneck: augment waits for its pool jobs, of which few are under way at once");
}

TEST_CASE("no stage shows what holds the run back: the verdict says so") {
  run_stats s = starving();
  CHECK(s.verdict() == "the pipeline is the bottleneck, and no stage of it shows why");
  s.stages = {stage("idle", 0, 0)};
  CHECK(s.verdict() == "the pipeline is the bottleneck, and no stage of it shows why");
}

TEST_CASE("too short a run has no verdict") {
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
