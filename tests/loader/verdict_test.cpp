// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Pipelines with one bottleneck each, planted at three magnitudes: the verdict names its stage and what changes it.
// Stores, links, devices and what runs on the loop are on virtual time. Jobs are on real threads, and their verdicts
// come from counts and shares, which a busy machine does not change.

#include <millrace/loader/run_stats.hpp>

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/item_bytes.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/detail/run_state.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/sync/channel.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/known_hosts.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/packers.hpp"

using namespace millrace;
using namespace std::chrono_literals;

namespace {

duration milliseconds(double ms) { return duration(static_cast<std::int64_t>(1e6 * ms)); }

/// A run on virtual time: what run() does, with a coroutine as the training thread.
class virtual_run {
 public:
  testing::virtual_loop loop;
  duration step{0};
  duration holds{0};  ///< a batch that was trained on is held so long; one after another

  template <class T>
  run_stats of(stream<T> made) {
    async_generator<T> pipeline = std::move(made).generator();
    run_context context;
    context.set_consumer_waits_since(run_context::not_waiting);
    detail::run_metrics metrics;
    metrics.share(std::shared_ptr<const detail::store_hosts>(std::shared_ptr<void>(), runtime_.hosts()), nullptr, 1,
                  false);
    channel<T> queue(2);
    channel<T> held(1000);
    metrics.begin(loop.now_ns());
    const coroutine_context here(loop, context, metrics.sink());
    spawned<void> filling(here, fill(pipeline, queue));
    spawned<void> holding(coroutine_context(loop, context, nullptr), hold(held, holds));
    block_on(coroutine_context(loop, context, nullptr), train(*this, queue, held, context, metrics));
    metrics.end(loop.now_ns());
    filling = spawned<void>();
    holding = spawned<void>();
    pipeline = async_generator<T>();  // before its records
    return metrics.snapshot(loop.now_ns());
  }

 private:
  template <class T>
  static task<void> fill(async_generator<T>& pipeline, channel<T>& queue) {
    for (;;) {
      std::optional<T> item = co_await pipeline.next();
      if (!item) break;
      co_await queue.send(std::move(*item));
    }
    queue.close();
  }
  template <class T>
  static task<void> train(virtual_run& self, channel<T>& queue, channel<T>& held, run_context& context,
                          detail::run_metrics& metrics) {
    for (;;) {
      const std::int64_t asked = self.loop.now_ns();
      context.set_consumer_waits_since(asked);
      std::optional<T> item = co_await queue.receive();
      context.set_consumer_waits_since(run_context::not_waiting);
      if (!item) {
        metrics.got_none(asked, self.loop.now_ns());
        break;
      }
      metrics.got_item(asked, self.loop.now_ns(), 0);
      if (self.step.count() > 0) co_await sleep_for(self.step);
      if (self.holds.count() > 0) held.try_send(std::move(*item));
    }
    held.close();
  }
  template <class T>
  static task<void> hold(channel<T>& held, duration each) {
    for (;;) {
      std::optional<T> item = co_await held.receive();
      if (!item) break;
      co_await sleep_for(each);
    }
  }

  test::known_hosts runtime_{loop};
};

/// A store of zeros: the time to the first byte, the rate of a connection and of all together, and how many requests a
/// second it takes before it answers 503.
class store final : public storage {
 public:
  duration first_byte = 10ms;
  double connection_rate = 100e6;
  double link_rate = 0;
  double requests = 0;
  std::uint64_t object_bytes = 256 * KiB;

  bool serves(std::string_view) const noexcept override { return true; }
  std::string host(std::string_view) const override { return "https://store"; }
  task<part> read(shard, std::string, std::uint64_t offset, std::size_t length, slab_pool slabs) const override {
    const coroutine_context here = co_await this_context();
    executor& ex = here.get_executor();
    while (requests > 0) {
      const duration each(static_cast<std::int64_t>(1e9 / requests));
      if (next_request_ <= ex.now()) {
        next_request_ = std::max(next_request_, ex.now() - each) + each;
        break;
      }
      detail::count_retry(ex, true, std::make_exception_ptr(std::runtime_error("503 SlowDown")));
      co_await sleep_for(50ms);
    }
    co_await sleep_for(first_byte);
    length = static_cast<std::size_t>(std::min<std::uint64_t>(length, object_bytes - offset));
    const auto takes = [length](double rate) {
      return duration(static_cast<std::int64_t>(1e9 * static_cast<double>(length) / rate));
    };
    const time_point alone = ex.now() + takes(connection_rate);
    if (link_rate > 0) {
      link_free_ = std::max(link_free_, ex.now()) + takes(link_rate);
      co_await sleep_until(std::max(alone, link_free_));
    } else {
      co_await sleep_until(alone);
    }
    part p;
    p.total = object_bytes;
    p.first_byte = first_byte;
    writable_bytes slab = slabs.acquire();
    p.data = slab.share(0, length);
    co_return std::move(p);
  }

 private:
  mutable time_point next_request_{};
  mutable time_point link_free_{};
};

async_generator<shard> names(int objects, std::uint64_t size, int page, duration wait, duration first) {
  if (first.count() > 0) co_await sleep_for(first);
  for (int i = 0; i < objects; ++i) {
    if (i % page == 0 && wait.count() > 0) co_await sleep_for(wait);
    shard s("https://store/b/" + std::to_string(i), size);
    co_yield give(s);
  }
}
/// The names of objects, `page` at a time, each page after a wait; the first one after another.
stream<shard> listing(int objects, std::uint64_t size, int page = 1000, duration wait = duration(0),
                      duration first = duration(0)) {
  // As client.list() is named.
  return stream<shard>(names(objects, size, page, wait, first))
      .named("list", "name the objects, by shards(), or read them by an index");
}

run_stats fetched(const std::shared_ptr<store>& from, int objects, fetch_options how = {}) {
  virtual_run run;
  const std::shared_ptr<const storage> where_from = from;
  return run.of(listing(objects, from->object_bytes) | fetch(where_from, how));
}

/// A device whose copies take their time, on a link of so many bytes a second.
class slow_device {
 public:
  class link {
   public:
    const executor* clock = nullptr;
    double rate = 1e9;
    mutable time_point free{};
  };
  class event_type {
   public:
    time_point due{};
  };
  explicit slow_device(const link& l) noexcept : link_(&l) {}

  void* allocate_pinned(std::size_t n) const { return host_device().allocate_pinned(n); }
  void free_pinned(void* memory, std::size_t n) const noexcept { host_device().free_pinned(memory, n); }
  void* allocate_device(std::size_t n) const { return host_device().allocate_device(n); }
  void free_device(void* memory, std::size_t n) const noexcept { host_device().free_device(memory, n); }
  event_type make_event() const noexcept { return {}; }
  void copy_to_device(void* to, const void* from, std::size_t n) const noexcept {
    host_device().copy_to_device(to, from, n);
    const duration takes(static_cast<std::int64_t>(1e9 * static_cast<double>(n) / link_->rate));
    link_->free = std::max(link_->free, link_->clock->now()) + takes;
  }
  void record(event_type& e) const noexcept { e.due = link_->free; }
  void record(event_type& e, stream_ref) const noexcept { e.due = link_->free; }
  void wait(stream_ref, const event_type&) const noexcept {}
  bool query(const event_type& e) const noexcept { return e.due <= link_->clock->now(); }
  void synchronize(const event_type&) const noexcept {}
  void synchronize(stream_ref) const noexcept {}
  std::string name() const { return "slow"; }
  friend bool operator==(const slow_device&, const slow_device&) noexcept = default;

 private:
  const link* link_;
};

class row {
 public:
  explicit row(std::int64_t i) noexcept : id(i) {}
  std::int64_t id;
};
void collate(const row& r, sample_writer& out) {
  const std::vector<std::int64_t> many(4096, r.id);
  out.write("id", r.id);
  out.write("many", many);
}

async_generator<int> numbers(int n) {
  for (int i = 0; i < n; ++i) {
    int value = i;
    co_yield give(value);
  }
}
stream<std::vector<row>> rows(int n) {
  return numbers(n) | map([](int i) { return row(i); }) | batch(8);
}

/// Takes so long of the thread that it is called on.
class computing {
 public:
  explicit computing(duration d) noexcept : takes(d) {}
  duration takes;
  int operator()(int i) const {
    const std::int64_t end = monotonic_ns() + takes.count();
    while (monotonic_ns() < end) continue;
    return i;
  }
};
/// Waits so long on the thread that it is called on, as for an answer.
class sleeping {
 public:
  explicit sleeping(duration d) noexcept : takes(d) {}
  duration takes;
  int operator()(int i) const {
    ::poll(nullptr, 0, static_cast<int>(takes / 1ms));
    return i;
  }
};

template <class T>
run_stats real_run(stream<T> made, const runtime_options& on = {}) {
  auto r = run(std::move(made), {.show = progress::off}, on);
  while (r.next()) continue;
  return r.stats();
}

/// Another run that keeps a pool's threads taken.
class other_work {
 public:
  explicit other_work(cpu_pool& pool) : thread_([this, &pool] { work(pool); }) {
    while (!begun_) std::this_thread::yield();
  }
  ~other_work() {
    over_ = true;
    thread_.join();
  }

 private:
  void work(cpu_pool& pool) {
    auto r = run(numbers(1'000'000) | map_concurrent(sleeping(1ms), {.limit = 16, .on = pool}),
                 {.show = progress::off});
    while (!over_ && r.next()) begun_ = true;
  }
  std::atomic<bool> over_{false}, begun_{false};
  std::thread thread_;
};

/// Objects that are compressed, whole.
async_generator<chunk> packed(int objects, std::string object) {
  for (int i = 0; i < objects; ++i) {
    auto from = std::make_shared<const shard>("o" + std::to_string(i), object.size());
    chunk c(std::move(from), 0, bytes::copy(object), true);
    co_yield give(c);
  }
}
std::string packed_tar(std::size_t size) {
  test::header_block h;
  h.name = "a";
  return test::compress("gzip", test::raw_member(h, std::string(size, 'x')) + test::end_block());
}

// ---- what was said of each

class told {
 public:
  explicit told(const char* of) noexcept : plant_(of) {}
  /// `source`: whether what holds the run back is the store or the way to it.
  void check(const std::string& magnitude, const run_stats& s, bool source, const std::string& stage,
             const std::vector<std::string>& knob) {
    const std::string said = s.verdict();
    bool right = said.find(stage) != std::string::npos;
    for (const std::string& each : knob) right = right && said.find(each) != std::string::npos;
    ++plants;
    named += right;
    const std::string first = said.substr(0, said.find_first_of(": "));
    const bool called_so = first == "fetch" || first == "list" || first == "epochs";
    if (called_so && !source) ++wrongly_source;
    std::printf("%-4s %-22s %-9s %s\n", right ? "" : "NOT", plant_, magnitude.c_str(), said.c_str());
    INFO(plant_ << ' ' << magnitude << ": " << said << '\n' << s.table());
    CHECK((source || !called_so));
  }

  static inline int plants = 0, named = 0, wrongly_source = 0;

 private:
  const char* plant_;
};

std::string in_ms(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%g ms", ms);
  return text;
}

void plant_stores() {
  for (const double ms : {50.0, 300.0, 2000.0}) {
    const auto from = std::make_shared<store>();
    virtual_run run;
    const std::shared_ptr<const storage> s = from;
    told("list").check(in_ms(ms), run.of(listing(60, from->object_bytes, 1, milliseconds(ms)) | fetch(s)), true,
                       "list ", {"waits", "by shards()"});
  }
  for (const double ms : {200.0, 500.0, 2000.0}) {
    const auto from = std::make_shared<store>();
    from->first_byte = milliseconds(ms);
    told("latency").check(in_ms(ms), fetched(from, 600, {.requests = 16}), true, "fetch: 16 requests",
                          {"to the first byte", "; try .requests = 64 (now 16)"});
  }
  for (const double mb : {10.0, 50.0, 200.0}) {
    const auto from = std::make_shared<store>();
    from->link_rate = 1e6 * mb;
    from->connection_rate = from->link_rate / 4;
    from->object_bytes = 32 * MiB;
    told("bandwidth").check(std::to_string(static_cast<int>(mb)) + " MB/s", fetched(from, 40), true, "fetch: with ",
                            {"the link, or what the store sends in all, is the limit", "no option does"});
  }
  for (const std::size_t n : {1, 2, 4}) {
    const auto from = std::make_shared<store>();
    from->first_byte = 300ms;
    told("too few shards").check(std::to_string(n), fetched(from, 200, {.shards = n}), true, "fetch: ",
                                 {" open at 30", "; try .shards = 0", "(now " + std::to_string(n) + ")"});
  }
  for (const double rate : {20.0, 50.0, 100.0}) {
    const auto from = std::make_shared<store>();
    from->requests = rate;
    told("throttling").check(std::to_string(static_cast<int>(rate)) + "/s", fetched(from, 400), true,
                             "fetch: the store asked for fewer requests", {"503 SlowDown", ".part"});
  }
  for (const std::size_t n : {1, 2, 4}) {
    const auto from = std::make_shared<store>();
    from->first_byte = 200ms;
    from->connection_rate = 50e6;
    from->object_bytes = 64 * MiB;
    const fetch_options how{.shards = 2, .window = n * MiB, .part = MiB};
    told("memory").check(std::to_string(n) + " MiB", fetched(from, 8, how), true, "fetch: ",
                         {"as its memory holds", "; try .window = " + std::to_string(2 * n) + " * MiB"});
  }
}

void plant_stages() {
  for (const char* each : {"1.00 ms", "5.00 ms", "50.0 ms"}) {
    virtual_run run;
    const auto works = [&run, each](int i) {
      run.loop.advance(milliseconds(std::stod(each)));
      return i;
    };
    told("own stage on the loop").check(each, run.of(numbers(200) | map(works)), false, "map runs ",
                                        {std::string(each) + " an item on the loop's thread",
                                         "map_concurrent puts it on the pool"});
  }
  for (const char* each : {"5.00 ms", "50.0 ms", "500 ms"}) {
    virtual_run run;
    run.step = milliseconds(std::stod(each));
    const auto works = [&run](int i) {
      run.loop.advance(2ms);
      return i;
    };
    told("training step").check(each, run.of(numbers(1000) | map(works)), false,
                                "the training thread is the bottleneck",
                                {std::string("your step takes ") + each, "could give an item every 2.00 ms"});
  }
  for (const double s : {1.0, 5.0, 30.0}) {
    const std::shared_ptr<const storage> from = std::make_shared<store>();
    virtual_run run;
    run.step = 20ms;
    const duration first = milliseconds(1e3 * s);
    told("start-up only").check(in_ms(1e3 * s), run.of(listing(40, 256 * KiB, 1000, duration(0), first) | fetch(from)),
                                false, "the training thread is the bottleneck",
                                {"passed before the first item", "of them in list", "by shards()"});
  }
}

void plant_devices() {
  for (const double mb : {1.0, 10.0, 100.0}) {
    slow_device::link link;
    virtual_run run;
    link.clock = &run.loop;
    link.rate = 1e6 * mb;
    told("copy").check(std::to_string(static_cast<int>(mb)) + " MB/s",
                       run.of(rows(400) | to_device(slow_device(link))), false, "to_device: its 3 slots",
                       {"copies under way", "copy fewer bytes"});
  }
  for (const double ms : {10.0, 50.0, 200.0}) {
    slow_device::link link;
    virtual_run run;
    link.clock = &run.loop;
    link.rate = 1e10;
    run.holds = milliseconds(ms);
    told("slots kept").check(in_ms(ms), run.of(rows(400) | to_device(slow_device(link), {.slots = 2})), false,
                             "to_device: its 2 slots", {"batches that the program keeps", "; try .slots = 4 (now 2)"});
  }
}

void plant_jobs() {
  const unsigned cores = cpu_pool::usable_cores();
  cpu_pool four(4);
  for (const double ms : {1.0, 2.0, 4.0}) {
    const std::string object = packed_tar(static_cast<std::size_t>(ms) * 2 * MiB);
    told("unpack").check(in_ms(ms), real_run(packed(60, object) | untar({}, {.on = four, .objects = 1})), false,
                         "untar: its pool jobs", {"at most 1 is under way at once, on 4 threads", ".objects"});
  }
  for (const double ms : {1.0, 2.0, 4.0}) {
    const computing each(milliseconds(ms));
    told(".limit").check(in_ms(ms), real_run(numbers(120) | map_concurrent(each, {.limit = 1, .on = four})), false,
                         "map_concurrent: .limit = 1 of 4 pool threads", {"; try .limit = 8"});
  }
  for (const double ms : {1.0, 2.0, 4.0}) {
    cpu_pool one(1);
    const std::vector<std::string> knob = cores > 1
                                              ? std::vector<std::string>{"; try .on = a pool of "}
                                              : std::vector<std::string>{"more cores"};
    const computing each(milliseconds(ms));
    told("small .on pool").check(in_ms(ms), real_run(numbers(120) | map_concurrent(each, {.limit = 16, .on = one})),
                                 false, "map_concurrent: its pool jobs", knob);
  }
  for (const double ms : {0.1, 0.2, 0.4}) {
    cpu_pool shared(2);
    other_work others(shared);
    const computing each(milliseconds(ms));
    told("other work").check(in_ms(ms), real_run(numbers(60) | map_concurrent(each, {.limit = 4, .on = shared})), false,
                             "map_concurrent: its pool jobs", {"other work", "; try .on = a pool of its own"});
  }
  for (const double ms : {2.0, 5.0, 20.0}) {
    const sleeping each(milliseconds(ms));
    told("sleep in a job").check(in_ms(ms), real_run(numbers(200) | map_concurrent(each, {.limit = 8, .on = four})),
                                 false, "map_concurrent: its pool jobs", {"sleep or wait for", "return a task"});
  }
}

}  // namespace

TEST_CASE("the verdict names stage and option of 48 planted bottlenecks", "[slow]") {
  plant_stores();
  plant_stages();
  plant_devices();
  plant_jobs();
  CHECK(told::plants == 48);
  // A sanitizer makes the loop's thread ten times as slow: then it is what holds some of them back.
  CHECK(told::named >= (MILLRACE_ASAN || MILLRACE_TSAN ? 40 : 45));
  CHECK(told::wrongly_source == 0);
}
