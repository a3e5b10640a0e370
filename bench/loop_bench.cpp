// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// How late timers are on a loop that fetches as fast as it can, beside the same timers on a loop without transfers
// (what the machine alone makes of them), and which share of a core a pipeline uses that has nothing to do: its trainer
// takes no items, its read-ahead is full. Server in a process of its own on core 0, client on core 1. Build: c++
// -std=c++20 -O2 -Iinclude -I. bench/loop_bench.cpp -o loop_bench -lcurl -luring -lssl -lcrypto -lexpat
//
//   loop_bench [timers per round, default 1000]

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <time.h>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t object_bytes = 128 * mill::MiB;

void fill(mill::s3_server::background& server) { server.put("b", "o", bench::noise(object_bytes, 1)); }

mill::stream<mill::chunk> chunks(const mill::s3::client& s3, std::size_t objects) {
  std::vector<mill::shard> known(objects, mill::shard("s3://b/o", std::uint64_t(object_bytes)));
  return mill::from_range(std::move(known)) | mill::fetch(s3);
}

mill::task<void> drain(mill::stream<mill::chunk> items, std::uint64_t& total) {
  while (std::optional<mill::chunk> c = co_await items.next()) total += c->data.size();
}

double thread_cpu_ms() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

/// Timers of 1 ms, one after the other; how late each was and the CPU time since the one before, in ms.
mill::task<void> watch_timers(int count, bench::figure& late, bench::figure& used) {
  mill::executor& ex = co_await mill::this_executor();
  for (int i = 0; i < count; ++i) {
    const double cpu = thread_cpu_ms();
    const std::int64_t due = mill::monotonic_ns() + 1000000;
    const mill::duration rest(due - ex.now().time_since_epoch().count());
    co_await mill::sleep_for(rest);
    late.add(static_cast<double>(mill::monotonic_ns() - due) * 1e-6);
    used.add(thread_cpu_ms() - cpu);
  }
}

/// While `objects` objects are read: far more than the timers need.
mill::task<void> watch_under_load(const mill::s3::client& s3, int count, bench::figure& late, bench::figure& used,
                                  std::uint64_t& bytes) {
  mill::executor& ex = co_await mill::this_executor();
  mill::stream<mill::chunk> all = chunks(s3, 100000);
  const mill::spawned<void> transfers(ex, drain(std::move(all), bytes));
  co_await watch_timers(count, late, used);
}

void print(const char* who, const bench::figure& late) {
  std::printf("  %-34s p50 %7.3f ms   p99 %7.3f ms   max %7.3f ms\n", who, late.at(0.5), late.at(0.99), late.highest());
}

void lateness(const mill::s3::client& s3, int count) {
  const auto loop = mill::make_event_loop();
  bench::figure idle;
  bench::figure busy;
  bench::figure idle_used;
  bench::figure busy_used;
  bench::figure p99;
  double bytes = 0;
  double seconds = 0;
  for (int round = 0; round < bench::rounds; ++round) {
    mill::block_on(*loop, watch_timers(count / 4, idle, idle_used));
    bench::figure one;
    const bench::cost c = bench::measure([&] {
      std::uint64_t total = 0;
      mill::block_on(*loop, watch_under_load(s3, count, one, busy_used, total));
      return total;
    });
    for (const double x : one.values()) busy.add(x);
    p99.add(one.at(0.99));
    bytes += c.bytes;
    seconds += c.seconds;
  }
  std::printf("lateness of timers, %s\n", loop->backend());
  print("no transfers", idle);
  print("fetch at full speed", busy);
  print("CPU time between timers, fetching", busy_used);
  std::printf("  p99 of the rounds: %.3f ms (%.3f - %.3f), while %.2f GB/s came in\n", p99.median(), p99.lowest(),
              p99.highest(), bytes / seconds * 1e-9);
  bench::goal_at_most("p99 under full load, wall clock", p99.median(), 10, "ms");
  bench::goal_at_most("p99 under full load, CPU time: the bound on an own core", busy_used.at(0.99), 10, "ms");
}

void idleness(const mill::s3::client& s3) {
  mill::run_options how;
  how.show = mill::progress::off;
  auto batches = mill::run(chunks(s3, 100), how);
  if (!batches.next()) std::abort();
  const auto pause = [](long ms) {
    const timespec t{ms / 1000, ms % 1000 * 1000000};
    ::nanosleep(&t, nullptr);
  };
  pause(1000);  // the read-ahead fills up
  bench::figure share;
  for (int round = 0; round < 5; ++round) {
    const bench::cost c = bench::measure([&] {
      pause(2000);
      return std::uint64_t(1);
    });
    share.add(100 * c.cpu_seconds / c.seconds);
  }
  std::printf("\nidle pipeline\n");
  bench::goal_at_most("share of a core over 2 s", share.median(), 1, "%");
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1000;
  bench::print_machine();
  const bench::served server(false, fill);
  bench::pin(1);
  const mill::s3::client s3 = server.client();
  lateness(s3, count);
  idleness(s3);
}
