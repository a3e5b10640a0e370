// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/run_stats.hpp>

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/decode/decode_arrays.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/records/tokens.hpp>

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
  s.stages[0].advice = ".window";
  CHECK(s.verdict() == "fetch waits for its own I/O, 70% of the time; raise its .window");
  s.stages[0].advice = "name the objects";
  CHECK(s.verdict() == "fetch waits for its own I/O, 70% of the time: name the objects");
  s.stages[0].advice = "";
  CHECK(s.verdict() == "fetch waits for its own I/O, 70% of the time");
  s.stages = {stage("fetch", 0.1, 0.1), stage("decode", 0.1, 0.6, 1.9)};
  CHECK(s.verdict() == "decode: its pool jobs take all that the pool has: more cores, or less work per item");
  s.stages = {stage("fetch", 0.1, 0.1), stage("decode", 0.2, 0.5, 0.1)};
  CHECK(s.verdict() == "decode: its pool jobs wait for threads that get no core or have other jobs");
  s.stages = {stage("fetch", 0.1, 0.1), stage("decode", 0.6, 0.1)};
  s.stages[1].busy_each = 0.002;
  CHECK(s.verdict() == "decode runs 2.00 ms an item on the loop's thread, 60% of its time: map_concurrent puts it on "
                       "the pool");
  s.stages = {stage("fetch", 0.3, 0.4), stage("decode", 0.65, 0)};
  CHECK(s.verdict() == "decode runs on the loop's thread, 65% of its time: map_concurrent puts it on the pool");
  s.stages = {stage("fetch", 0.1, 0.1), stage("untar", 0.6, 0)};
  s.loops = 1;
  CHECK(s.verdict() ==
        "untar runs on the loop's thread, 60% of its time; try runtime_options::loops = 2 (now 1), which take "
        "transfers off it");
  s.waited = 0.04;
  CHECK_THAT(s.verdict(), Contains("the training thread is the bottleneck"));
}

TEST_CASE("the verdict says what a stage that reads by ranges has chosen, and what its limit is") {
  run_stats s = starving();
  s.stages = {stage("fetch", 0.1, 0.7), stage("decode", 0.2, 0.1)};
  s.stages[0].reads = 64;
  s.stages[0].read_part = 1 * MiB;
  CHECK(s.verdict() == "fetch: waits for 64 requests of up to 1.05 MB at a time");
  s.stages[0].limit = read_limit::memory;
  CHECK(s.verdict() ==
        "fetch: 64 requests of up to 1.05 MB at a time are as many as its memory holds; raise its .bytes");
  s.stages[0].own_bytes = 16 * MiB;
  s.stages[0].bytes_option = ".window";
  CHECK(s.verdict() ==
        "fetch: 64 requests of up to 1.05 MB at a time are as many as its memory holds; try .window = 32 * MiB (now 16 "
        "* MiB)");
  s.stages[0].limit = read_limit::requests;
  CHECK(s.verdict() ==
        "fetch: 64 requests of up to 1.05 MB at a time are as many as it may have, and the rate of a connection is the "
        "limit; raise its .requests");
  s.stages[0].own_requests = 64;
  CHECK_THAT(s.verdict(), Contains("the limit; try .requests = 128 (now 64)"));
  s.stages[0].limit = read_limit::shards;
  s.stages[0].own_shards = 1;
  CHECK(s.verdict() == "fetch: 1 object open; try .shards = 0, as many as there are requests for (now 1)");
  s.requests.part.count = 10;
  s.requests.part.sum = 3;
  CHECK_THAT(s.verdict(), Contains("fetch: 1 object open at 300 ms a request; try .shards"));
  s.stages[0].limit = read_limit::link;
  s.bytes = 160'000'000;
  CHECK(s.verdict() ==
        "fetch: with 64 requests of up to 1.05 MB at a time the link, or what the store sends in all, is the limit: "
        "160 MB/s; fewer bytes or a nearer store help, no option does");
  s.stages[0].limit = read_limit::disk;
  CHECK(s.verdict() ==
        "fetch: the disk of its cache is the limit: 160 MB/s; a faster disk or fewer bytes help, no option does");
  s.stages[0].limit = read_limit::link;
  s.disk_cache.hits = 5;
  s.disk_cache.hit_bytes = 100;
  s.disk_cache.misses = 15;
  s.disk_cache.miss_bytes = 300;
  s.disk_cache.admitted = 100;
  s.disk_cache.refused = 100;
  CHECK_THAT(s.verdict(), !Contains("disk cache"));
  s.disk_cache.refused = 300;
  CHECK_THAT(s.verdict(), !Contains("disk cache"));  // why is not known
  s.disk_cache.full = 200;
  s.disk_cache.bytes = 2 * GiB;
  CHECK_THAT(s.verdict(), Contains("no option does; the disk cache is too small: 200 blocks found it full; try .bytes "
                                   "= 9 * GiB (now 2048 * MiB)"));
  s.disk_cache.full = 0;
  s.disk_cache.slow = 200;
  CHECK_THAT(s.verdict(), Contains("; the disk cache is slower than the store: 200 blocks were not kept, as others "
                                   "waited to be written"));
  CHECK_THAT(s.table(), Contains("disk cache: 5 reads (100 B) from the disk, 15 reads (300 B) from the store; blocks: "
                                 "100 admitted, 300 refused, 0 damaged\n"));
  s.disk_cache = disk_cache_stats();
  CHECK_THAT(s.table(), !Contains("disk cache"));
  s.stages[0].read_first_byte = 0.0152;
  s.stages[0].read_rate = 30e6;
  CHECK_THAT(s.verdict(), Contains("at a time (15.2 ms to the first byte, 30.0 MB/s on a connection) the link, "));
  s.requests.throttles = 4;
  s.requests.last_throttle = "503 SlowDown";
  CHECK(s.verdict() ==
        "fetch: the store asked for fewer requests 4 times (10 reads; 503 SlowDown): larger objects and a larger .part "
        "make fewer, and keys under several prefixes may have more");
  s.waited = 0.01;
  CHECK_THAT(s.verdict(), Contains("the training thread is the bottleneck"));
}

TEST_CASE("the verdict names options that the stage has") {
  run_stats s = starving();
  s.stages = {stage("mine", 0.1, 0.7)};
  CHECK(s.verdict() ==
        "mine waits for its own I/O, 70% of the time: let more of it be under way at once, by map_concurrent()");
  const auto text = [](int) -> task<int> { co_return 1; };
  const run_stats made = after_all(numbers(20) | named("mine", map(text)) | named("tasks", map_concurrent(text)));
  REQUIRE(made.stages.size() == 3);
  CHECK(made.stages[1].advice == nullptr);
  CHECK(made.stages[2].advice == std::string(".limit"));
}

namespace {

/// A function that takes a millisecond of a pool's thread; with a sanitizer, which slows the loop's thread, four.
const auto work = [](int i) {
  const std::int64_t begun = monotonic_ns();
  while (monotonic_ns() - begun < (MILLRACE_ASAN || MILLRACE_TSAN ? 4'000'000 : 1'000'000)) continue;
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
    CHECK_THAT(of(1), Contains("map_concurrent: .limit = 1 of 4 pool threads, at ") &&
                          Contains(" a job; try .limit = 8"));
    CHECK_THAT(of(2), Contains("map_concurrent: .limit = 2 of 4 pool threads"));
    CHECK_THAT(of(1, {.threads = 4}), Contains("map_concurrent: .limit = 1 of 4 pool threads"));
  }
  SECTION("the stage's .limit, of jobs that sleep, for which no other remedy does anything without it") {
    const auto sleep = [](int i) {
      ::poll(nullptr, 0, 2);
      return i;
    };
    const auto of = [&](std::size_t limit) {
      return after_all(numbers(200 + 60 * static_cast<int>(limit)) |
                       map_concurrent(sleep, {.limit = limit, .on = four}))
          .verdict();
    };
    CHECK_THAT(of(1),
               Contains("map_concurrent: its pool jobs") &&
                   Contains("each on one of 4 threads; try .limit = 16 (now 1), and let the function return a task"));
    CHECK_THAT(of(4), Contains("; try .limit = 16 (now 4), and let"));
    CHECK_THAT(of(8), Contains("each on one of 4 threads: let the function return a task") && !Contains(".limit"));
  }
  SECTION("that of fill_batches()") {
    const batch_pool memory(batch_layout(4, {{"id", dtype::i64}}));
    const auto fill = [](int i, const batch_row& to) { to.set("id", static_cast<std::int64_t>(work(i))); };
    CHECK_THAT(after_all(numbers(enough) | fill_batches(memory, fill, {.on = four, .limit = 1})).verdict(),
               Contains("fill_batches: .limit = 1 of 4 pool threads"));
  }
  SECTION("its .bytes") {
    const auto make = [](int i) { return heavy(work(i)); };
    CHECK_THAT(
        after_all(numbers(enough) | map_concurrent(make, {.limit = 8, .on = four, .bytes = MiB})).verdict(),
        Contains("few fit into its bound in bytes; try .bytes = 2 * MiB (now 1 * MiB)"));
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
      CHECK_THAT(given, Contains("the pool's 1 thread is busy, with ") && Contains("; try .on = a pool of "));
      CHECK_THAT(of_runtime, Contains("; try runtime_options::threads = ") && Contains("(now 1)"));
    } else {
      CHECK_THAT(given, Contains("more cores"));
      CHECK_THAT(of_runtime, Contains("more cores"));
    }
  }
  SECTION("the machine") {
    CHECK_THAT(
        after_all(numbers(static_cast<int>(cores) * enough) | map_concurrent(work, {.limit = 256})).verdict(),
        Contains("map_concurrent: its pool jobs of ") &&
            Contains(" take all that the pool has: more cores, or less work per item"));
  }
  SECTION("to_device(), which lays one batch out at a time") {
    const auto rows = [](int i) { return row{i}; };
    CHECK_THAT(after_all(numbers(enough) | map(rows) | batch(2) | to_device(host_device(), {.on = four})).verdict(),
               Contains(": at most 1 is under way at once, on 4 threads: lay the batches out before it, by "
                        "fill_batches()"));
  }
}

TEST_CASE("the remedy for what keeps the loop's thread busy is none that it has already") {
  run_stats s;
  s.items = 100;
  s.seconds = 10;
  s.waited = 0.9;
  s.stages.emplace_back();
  s.stages[0].name = "map_concurrent";
  s.stages[0].busy = 0.8;
  s.stages[0].pool_limit = 16;
  CHECK_THAT(s.verdict(), Contains("on the loop's thread") && Contains(": a function that returns no task is called"));
  s.stages[0].pool_threads = 4;
  CHECK_THAT(s.verdict(),
             Contains(", beside its jobs on the pool: more work in each") && !Contains("map_concurrent puts"));
  s.stages[0].name = "fill_batches";
  CHECK_THAT(s.verdict(), Contains("; try runtime_options::loops = 2 (now 1)"));
}

TEST_CASE("a stage that is made of several has one line, under the name that the program has written") {
  const auto names = [](const run_stats& s) {
    std::string all;
    for (const stage_stats& each : s.stages) all += each.name + ' ';
    return all;
  };
  const batch_pool memory(batch_layout(4, {{"id", dtype::i64}}));
  const auto fill = [](int i, const batch_row& to) { to.set("id", static_cast<std::int64_t>(i)); };
  const run_stats filled = after_all(numbers(40) | fill_batches(memory, fill));
  CHECK(names(filled) == "stage 1 fill_batches ");
  CHECK(filled.stages[1].items == 10);
  CHECK(filled.stages[1].jobs.count == 40);
  auto bounded = numbers(40) | fill_batches(memory, fill);
  for (const stage_bounds& b : bounded.bounds()) CHECK(std::string(b.name) == "fill_batches");
  const auto named = [](const std::vector<stage_bounds>& all) {
    std::set<std::string> each;
    for (const stage_bounds& b : all) each.insert(b.name);
    return each;
  };
  using written = std::set<std::string>;
  const auto no_samples = []() -> async_generator<sample> { co_return; };
  CHECK(named((no_samples() | decode_arrays()).bounds()) == written{"decode_arrays"});
  CHECK(named((no_samples() | decode_arrays() | batch(2)).bounds()) == written{"batch", "decode_arrays"});
  const auto no_lines = []() -> async_generator<line_batch> { co_return; };
  const auto letters = [](std::string_view line) { return std::vector<int>(line.begin(), line.end()); };
  CHECK(named((no_lines() | tokens(letters)).bounds()) == written{"tokens"});
}

TEST_CASE("the verdict on what a stage waits for names options of that stage", "[slow]") {
  const auto wait = [](int i) -> task<int> {
    co_await sleep_for(std::chrono::milliseconds(1));
    co_return i;
  };
  CHECK_THAT(after_all(numbers(enough) | map_concurrent(wait, {.limit = 1})).verdict(),
             Contains("map_concurrent waits for its own I/O, ") && Contains("; try .limit = 16 (now 1)"));
  const auto make = [](int i) -> task<heavy> {
    co_await sleep_for(std::chrono::milliseconds(1));
    co_return heavy(i);
  };
  CHECK_THAT(after_all(numbers(enough) | map_concurrent(make, {.limit = 8, .bytes = MiB})).verdict(),
             Contains("map_concurrent waits for its own I/O, ") && Contains("; try .bytes = 2 * MiB (now 1 * MiB)"));
  CHECK_THAT(after_all(numbers(enough) | map(wait)).verdict(), Contains("by map_concurrent()"));
}

TEST_CASE("for a full loop the verdict names the stage that fills it most, and where its work can go") {
  run_stats s = starving();
  s.stages = {stage("fetch", 0.2, 0.75), stage("map", 0.75, 0)};
  CHECK_THAT(s.verdict(), Contains("map runs on the loop's thread") && Contains("map_concurrent"));
  s.stages = {stage("fetch", 0.75, 0), stage("map", 0.2, 0.75)};
  CHECK_THAT(s.verdict(), Contains("fetch runs on the loop's thread") && Contains("runtime_options::loops = 2"));
}

TEST_CASE("the verdict on a training thread that is not kept waiting says what the pipeline could give") {
  run_stats s = starving();
  s.waited = 0;
  s.samples = 32000;
  s.items = 101;
  s.steps.count = 100;
  s.steps.sum = 1;
  s.stages = {stage("fetch", 0.1, 0), stage("decode", 0.1, 0.1)};
  s.stages[1].blocked = 0.8;
  CHECK(s.verdict() ==
        "the training thread is the bottleneck: your step takes 10.0 ms, the pipeline could give a batch every 2.00 "
        "ms");
  s.stages[1].pool = 3;
  s.stages[1].pool_threads = 4;
  CHECK_THAT(s.verdict(), Contains("every 7.50 ms"));
  s.seconds = 4;
  s.first_after = 3;
  s.stages[0].before_first = 2.5;
  s.stages[0].advice = "name the objects";
  CHECK_THAT(s.verdict(), Contains("; of 4.00 s, 3.00 s passed before the first batch, 2.50 s of them in fetch: name "
                                   "the objects"));
}

TEST_CASE("headroom is how many times as fast the training would be without waiting") {
  run_stats s = starving();
  CHECK(s.headroom() == Approx(10));
  CHECK_THAT(s.table(), Contains("; without waiting 10 times as fast\n"));
  s.waited = 0;
  CHECK(s.headroom() == 1);
  s.waited = 1;
  CHECK(s.headroom() == 1000);
}

TEST_CASE("the verdict on slots says what they are taken by") {
  run_stats s = starving();
  s.stages = {stage("to_device", 0.1, 0.8, 0.1)};
  s.stages[0].slots = 3;
  s.stages[0].pool_threads = 4;
  s.stages[0].waits_for = slot_limit::consumer;
  CHECK(s.verdict() ==
        "to_device: its 3 slots are taken by batches that the program keeps; try .slots = 6 (now 3), or let batches go "
        "sooner");
  s.stages[0].waits_for = slot_limit::copy;
  CHECK_THAT(s.verdict(), Contains("taken by copies under way, so the link to the device is the limit"));
  s.stages[0].waits_for = slot_limit::device;
  CHECK_THAT(s.verdict(), Contains("the training step is the bottleneck, on the device: to_device: its 3 slots"));
}

TEST_CASE("for a busy pool the verdict names the stage that uses it most") {
  run_stats s = starving();
  s.stages = {stage("decode", 0.1, 0.3, 1.8), stage("augment", 0.1, 0.6, 0.1)};
  for (stage_stats& each : s.stages) {
    each.pool_threads = 2;
    each.pool_cores = 2;
  }
  CHECK(s.verdict() ==
        "augment: its pool jobs wait: the pool's 2 threads are busy, most of all with those of decode: more cores, or "
        "less work");
  s.stages[0].pool_given = true;  // another pool
  CHECK(s.verdict() == "augment: its pool jobs: few are under way at once, on 2 threads");
  s.stages[1].jobs_crowded = 0.9;
  CHECK(s.verdict() ==
        "augment: its pool jobs wait for a thread: other work, of other runs or of the program, has the pool's 2 "
        "threads; try .on = a pool of its own, or runtime_options::threads = 4");
  s.stages[1].jobs_slept = 0.9;
  CHECK(s.verdict() ==
        "augment: its pool jobs sleep or wait for 90% of their time, each on one of 2 threads: let the function return "
        "a task, which waits on the loop without a thread, or raise runtime_options::threads (now 2)");
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
