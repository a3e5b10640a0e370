// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/runtime.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/device/late_device.hpp"
#include "tests/io/gate.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/zero_storage.hpp"

using namespace millrace;

namespace {

/// Whether the object has no other owner. What the others did with it before they left is seen then, which use_count()
/// alone does not promise: letting go of a copy is what meets their letting go.
template <class T>
bool only_owner(const std::shared_ptr<T>& object) noexcept {
  if (object.use_count() != 1) return false;
  const std::shared_ptr<T> copy = object;
  return copy.use_count() == 2;
}

template <class T>
void drop(pipeline_run<T> run) {
  const pipeline_run<T> dropped = std::move(run);
}

constexpr std::size_t objects = 8;

/// Every object is of 1 MiB. Notes how many slabs the pool that it is given has made.
class noting_storage final : public forwarding_storage {
 public:
  noting_storage() : forwarding_storage(std::make_shared<const test::zero_storage>()) {}
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    task<part> reading = inner()->read(std::move(object), std::move(etag), offset, length, slabs);
    part p = co_await std::move(reading);
    {
      const std::lock_guard lock(mutex_);
      made_.insert(slabs.peak());  // a slab is made when none is free, and never ends before its pool
    }
    co_return std::move(p);
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    return read(std::move(object), std::move(etag), 0, length, std::move(slabs));
  }
  /// The numbers seen since the last call.
  std::set<std::size_t> made() {
    const std::lock_guard lock(mutex_);
    return std::exchange(made_, {});
  }
  std::size_t most() const {
    const std::lock_guard lock(mutex_);
    return made_.empty() ? 0 : *made_.rbegin();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::set<std::size_t> made_;
};

/// Nothing comes of its reads.
class stuck_storage final : public storage {
 public:
  bool serves(std::string_view) const noexcept override { return true; }
  task<part> read(shard, std::string, std::uint64_t, std::size_t, slab_pool) const override {
    ++begun_;
    co_await sleep_for(std::chrono::hours(1));
    co_return part();
  }
  int begun() const noexcept { return begun_; }

 private:
  mutable std::atomic<int> begun_{0};
};

stream<chunk> chunks(std::shared_ptr<const storage> store, std::size_t part = 64 * KiB) {
  std::vector<shard> all;
  for (std::size_t i = 0; i < objects; ++i) all.emplace_back("mem:" + std::to_string(i), MiB);
  return from_range(std::move(all)) | fetch(store, {.shards = 2, .window = 2 * part, .part = part});
}

/// What the executor has, again and again.
struct counted {
  std::size_t frames;
  std::size_t operations;
};
async_generator<counted> census() {
  executor& ex = co_await this_executor();
  for (;;) {
    counted now{ex.frames(), ex.operations()};
    co_yield give(now);
  }
}

async_generator<int> never() { co_await sleep_for(std::chrono::hours(1)); }

async_generator<int> where_it_runs(std::atomic<runtime_parts*>& parts) {
  const coroutine_context here = co_await this_context();
  parts = &here.runtime();
  int one = 1;
  co_yield give(one);
}

}  // namespace

TEST_CASE("the second epoch on a runtime opens no connection") {
  for (const unsigned loops : {1u, 2u}) {
    s3_server::background server;
    for (std::size_t i = 0; i < objects; ++i) server.put("b", "train/" + std::to_string(i), std::string(100'000, 'x'));
    server.faults().add({}, s3_server::fault::delay_head(std::chrono::milliseconds(5)));
    s3::config_options how;
    const std::string endpoint = server.endpoint();
    how.endpoint = endpoint;
    const s3::client c(s3::config(how), s3::credentials("test-key", "test-secret"));
    runtime rt({.loops = loops, .http = {.connections_per_host = 2}});
    std::uint64_t after_first = 0;
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::size_t n = 0;
      for (const chunk& piece : rt.run(c.list("s3://b/train/") | fetch(c))) n += piece.data.size();
      CHECK(n == objects * 100'000);
      if (epoch == 0) after_first = server.stats().connections;
    }
    CHECK(after_first == 2 * loops);
    CHECK(server.stats().connections == after_first);
  }
}

TEST_CASE("the second epoch on a runtime makes no slab; pipelines of other part sizes have their own") {
  runtime rt;
  const auto store = std::make_shared<noting_storage>();
  {
    // Left alone until more has been read ahead than the later epochs can hold: 4 parts, one that waits, one in hand.
    auto first = rt.run(chunks(store), {.prefetch = 8});
    while (store->most() < 10) std::this_thread::yield();
    std::size_t n = 0;
    for (const chunk& c : first) n += c.data.size();
    CHECK(n == objects * MiB);
  }
  const std::set<std::size_t> made{*store->made().rbegin()};
  for (int epoch = 1; epoch < 3; ++epoch) {
    for (const chunk& c : rt.run(chunks(store), {.prefetch = 1})) REQUIRE(!c.data.empty());
    CHECK(store->made() == made);
  }
  for (const chunk& c : rt.run(chunks(store, 128 * KiB), {.prefetch = 1})) REQUIRE(!c.data.empty());
  CHECK(*store->made().begin() == 1);
}

TEST_CASE("two pipelines run side by side on one runtime, read by two threads") {
  for (const unsigned loops : {1u, 2u}) {
    runtime rt({.loops = loops});
    const auto store = std::make_shared<noting_storage>();
    const auto read = [&] {
      std::size_t n = 0;
      for (const chunk& c : rt.run(chunks(store))) n += c.data.size();
      return n;
    };
    std::size_t validation = 0;
    std::thread other([&] { validation = read(); });
    const std::size_t training = read();
    other.join();
    CHECK(training == objects * MiB);
    CHECK(validation == objects * MiB);
  }
}

TEST_CASE("a run that is dropped leaves the other runs' frames and operations, and nothing more") {
  runtime rt;
  auto watch = rt.run(census(), {.prefetch = 1});
  const auto now = [&] {
    watch.next();  // made before
    watch.next();
    return *watch.next();
  };
  const counted before = now();
  for (int taken = 0; taken < 20; ++taken) {
    auto dropped = rt.run(chunks(std::make_shared<noting_storage>()) |
                          map_concurrent([](chunk c) { return c.data.size(); }, {.limit = 3}));
    auto waiting = rt.run(never());
    for (int i = 0; i < taken; ++i) dropped.next();
    drop(std::move(dropped));
    drop(std::move(waiting));
    const counted after = now();
    CHECK(after.frames == before.frames);
    CHECK(after.operations == before.operations);
  }
}

TEST_CASE("a run that is dropped leaves nothing on the other loops that worked for it") {
  runtime rt({.loops = 2});
  auto watch = rt.run(census(), {.prefetch = 1});  // on the first loop, the others on the second
  const auto now = [&] {
    watch.next();
    watch.next();
    return *watch.next();
  };
  const counted before = now();
  for (int n = 0; n < 100; ++n) {
    const auto store = std::make_shared<stuck_storage>();
    auto dropped = rt.run(chunks(store));
    while (store->begun() < 2) std::this_thread::yield();  // as many as a window begins with, one on each loop
    drop(std::move(dropped));
    const counted after = now();
    CHECK(after.frames == before.frames);
    CHECK(after.operations == before.operations);
    CHECK(only_owner(store));
  }
}

TEST_CASE("a run that is dropped waits for its functions on the pool, and holds no other run up") {
  test::gate begun;
  test::gate may_end;
  std::atomic<bool> ended{false};
  std::atomic<bool> in_time{false};
  std::atomic<bool> gone{false};
  runtime rt({.threads = 2});
  auto watch = rt.run(census(), {.prefetch = 1});
  const auto now = [&] {
    watch.next();
    watch.next();
    return *watch.next();
  };
  const counted before = now();
  counted after{0, 0};
  auto slow = rt.run(iota(3) | map_concurrent(
                                   [&](int i) {
                                     begun.open();
                                     may_end.pass();
                                     ended = true;
                                     return i;
                                   },
                                   {.limit = 1}));
  begun.pass();
  std::thread trainer([&] {
    drop(std::move(slow));
    in_time = ended.load();
    after = now();  // the job was counted: nothing of it is left
    gone = true;
  });
  // Others begin, work and end meanwhile, on the same loop and the same pool.
  for (int n = 0; n < 20; ++n) {
    int sum = 0;
    for (const int i : rt.run(iota(10) | map_concurrent([](int i) { return i; }))) sum += i;
    CHECK(sum == 45);
    auto dropped = rt.run(never());
  }
  CHECK_FALSE(gone);
  may_end.open();
  trainer.join();
  CHECK(gone);
  CHECK(in_time);
  CHECK(after.operations == before.operations);
  CHECK(after.frames == before.frames);
}

TEST_CASE("a run keeps what it runs on when the runtime has gone") {
  std::optional<runtime> rt(std::in_place);
  auto r = rt->run(iota(1000) | map_concurrent([](int i) { return i; }));
  CHECK(r.next() == 0);
  rt.reset();
  int expected = 1;
  for (const int i : r) CHECK(i == expected++);
  CHECK(expected == 1000);
}

TEST_CASE("a runtime that was moved from is refused, the other one goes on") {
  runtime first;
  runtime second = std::move(first);
  CHECK_THROWS_AS(first.run(iota(1)), usage_error);
  CHECK_THROWS_AS(first.pool(), usage_error);
  CHECK(second.run(iota(1)).next() == 0);
}

TEST_CASE("the pool of a runtime has the threads it was asked for, or a rank's share of the cores") {
  CHECK(runtime({.threads = 3}).pool().threads() == 3);
  const unsigned cores = cpu_pool::usable_cores();
  CHECK(runtime().pool().threads() == cores);
  rank many;
  many.local_world_size = 100'000;
  CHECK(runtime({.rank = many}).pool().threads() == 1);
  runtime rt({.threads = 2});
  CHECK(&rt.pool() == &rt.pool());
}

TEST_CASE("a runtime has the loops it was asked for, or as many as its share of the cores can feed") {
  CHECK(detail::runtime_core::loops_for(1) == 1);
  CHECK(detail::runtime_core::loops_for(15) == 1);
  CHECK(detail::runtime_core::loops_for(16) == 2);
  CHECK(detail::runtime_core::loops_for(31) == 2);
  CHECK(detail::runtime_core::loops_for(32) == 4);
  CHECK(detail::runtime_core::loops_for(1000) == 4);
  const auto loops = [](const runtime_options& o) {
    std::atomic<runtime_parts*> parts{nullptr};
    runtime rt(o);
    CHECK(rt.run(where_it_runs(parts)).next() == 1);
    return parts.load()->loops();
  };
  CHECK(loops({.loops = 1}) == 1);
  CHECK(loops({.loops = 3}) == 3);
  CHECK(loops({}) == detail::runtime_core::loops_for(cpu_pool::usable_cores()));
  rank many;
  many.local_world_size = 100'000;
  CHECK(loops({.rank = many}) == 1);
}

TEST_CASE("several loops that the runtime has chosen are one log line, and in the stats") {
  CHECK(detail::runtime_core::loops_line(1, 15).empty());
  CHECK(detail::runtime_core::loops_line(2, 16) ==
        "millrace: 2 event loops, as the process may use 16 cores; runtime_options::loops sets another number");
  const auto stats = [](const runtime_options& o) {
    std::atomic<runtime_parts*> parts{nullptr};
    runtime rt(o);
    auto run = rt.run(where_it_runs(parts));
    while (run.next()) continue;
    return run.stats();
  };
  const run_stats given = stats({.loops = 3});
  CHECK(given.loops == 3);
  CHECK(!given.loops_by_cores);
  CHECK(given.table().find("\n3 loops\n") != std::string::npos);
  run_stats chosen = stats({});
  CHECK(chosen.loops == detail::runtime_core::loops_for(cpu_pool::usable_cores()));
  CHECK(chosen.loops_by_cores);
  chosen.loops = 2;
  CHECK(chosen.table().find("\n2 loops, as there are so many cores\n") != std::string::npos);
}

TEST_CASE("a pool that is smaller than the machine is one log line, a pool of a given size is not") {
  std::vector<std::string> lines;
  const auto add = [](void* to, const log_record& r) {
    static_cast<std::vector<std::string>*>(to)->emplace_back(r.text);
  };
  rank many;
  many.local_world_size = 7919;
  const unsigned all = detail::limits_of_process().machine;
  runtime({.threads = 1, .rank = many, .log = add, .log_context = &lines}).pool();
  CHECK(lines.empty());
  for (int i = 0; i < 2; ++i) {
    runtime rt({.rank = many, .log = add, .log_context = &lines});
    CHECK(rt.pool().threads() == 1);
  }
  if (all == 1) return;
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("millrace: 1 pool thread: of " + std::to_string(all) + " CPUs") == 0);
  CHECK(lines[0].find(", shared by 7919 ranks") != std::string::npos);
}

TEST_CASE("stages see the runtime they run on, and on a bare loop the defaults") {
  std::atomic<runtime_parts*> parts{nullptr};
  runtime rt;
  CHECK(rt.run(where_it_runs(parts)).next() == 1);
  CHECK(parts != nullptr);
  std::atomic<runtime_parts*> others{nullptr};
  runtime second;
  CHECK(second.run(where_it_runs(others)).next() == 1);
  CHECK(others.load() != parts.load());
  testing::virtual_loop bare;
  stream<int> there = where_it_runs(parts);
  const auto ask = [&]() -> task<std::optional<int>> { co_return co_await there.next(); };
  CHECK(block_on(bare, ask()) == 1);
  CHECK(parts.load() == &bare.runtime());
  there = stream<int>();
}

TEST_CASE("what stages say goes to the log of their runtime") {
  std::vector<std::string> lines;
  const auto add = [](void* to, const log_record& r) {
    static_cast<std::vector<std::string>*>(to)->emplace_back(r.text);
  };
  {
    runtime rt({.log = add, .log_context = &lines});
    const auto odd = [](int i) -> int {
      if (i % 2 == 0) throw decode_error("even");
      return i;
    };
    auto r = rt.run(iota(2) | map_concurrent(odd, {.failures = {.then = on_failure::skip, .limit = 9, .rate = 1}}));
    CHECK(r.next() == 1);
    CHECK_FALSE(r.next());
  }
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Catch::Matchers::Contains("millrace: map_concurrent: left out: "));
}

TEST_CASE("pipelines on one runtime may be dropped at any moment, by several threads") {
  for (const unsigned loops : {1u, 2u}) {
    runtime rt({.loops = loops, .threads = 2});
    const auto store = std::make_shared<noting_storage>();
    const auto epochs = [&](unsigned seed) {
      std::uint64_t random = seed;
      for (int n = 0; n < 25; ++n) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        auto r = rt.run(chunks(store) | map_concurrent([](chunk c) { return c.data.size(); }, {.limit = 4}));
        for (std::uint64_t i = (random >> 33) % 24; i > 0; --i) {
          if (r.next() != 64 * KiB) return false;
        }
      }
      return true;
    };
    bool good = false;
    std::thread other([&] { good = epochs(1); });
    CHECK(epochs(2));
    other.join();
    CHECK(good);
  }
}

TEST_CASE("pipelines into device slots of one runtime may be dropped at any moment, by several threads") {
  const auto lay_out = [](const int& i, sample_writer& out) { out.write("n", static_cast<std::int64_t>(i)); };
  test::late_device::user_stream* const user = nullptr;
  for (const unsigned loops : {1u, 2u}) {
    const test::late_device device;
    device.control().after = 1;
    {
      runtime rt({.loops = loops, .threads = 2});
      const auto epochs = [&](unsigned seed) {
        std::uint64_t random = seed;
        const auto below = [&random](std::uint64_t n) {
          random = random * 6364136223846793005u + 1442695040888963407u;
          return (random >> 33) % n;
        };
        std::deque<device_batch> kept;  // from one run to the next, too
        for (int n = 0; n < 25; ++n) {
          auto r = rt.run(iota(200) | map_concurrent([](int i) { return i; }, {.limit = 4}) | batch(4) |
                              to_device(device, {.slots = 3}, lay_out),
                          {.prefetch = 1 + below(3)});
          std::int64_t next = 0;
          for (std::uint64_t i = below(12); i > 0; --i) {
            std::optional<device_batch> b = r.next();
            if (!b) return false;
            b->wait(user);
            b->synchronize();
            for (const std::int64_t value : b->field("n").values<std::int64_t>()) {
              if (value != next++) return false;
            }
            if (below(2) == 0) continue;
            kept.push_back(std::move(*b));
            if (kept.size() > 2) kept.pop_front();
          }
        }
        return true;
      };
      bool good = false;
      std::thread other([&] { good = epochs(1); });
      CHECK(epochs(2));
      other.join();
      CHECK(good);
    }
    // What was in use at once: for each thread three slots and two batches of the run before.
    CHECK(device.control().device_made <= 10);
    CHECK(device.control().wrong == "");
    CHECK(device.control().device.empty());
    CHECK(device.control().pinned.empty());
  }
}
