// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What the way from a listing to samples costs beyond fetching: list | fetch | untar | group_samples beside list |
// fetch, in turns, on 100 MB shards of members of 100 KB, with pax headers as WebDataset writes them. Then the memory:
// page faults per GB and the peak of the resident set, in processes of their own, the server in another. Server on core
// 0, client on core 1. Build: c++ -std=c++20 -O2 -Iinclude -I. bench/pipeline_bench.cpp -o pipeline_bench
//            -lcurl -luring -larchive -lssl -lcrypto -lexpat
//
//   pipeline_bench [shards per round, default 20]

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/untar.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"
#include "bench/common/webdataset.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t part_bytes = 8 * mill::MiB;
constexpr mill::fetch_options ahead{.shards = 8, .window = part_bytes, .part = part_bytes};
constexpr std::size_t stored_shards = 20;
const std::string prefix = "s3://b/train/";

void fill(mill::s3_server::background& server) {
  bench::store_shards(server, stored_shards, {.mtime_ns = 1700000000123456000});
}

mill::stream<mill::chunk> chunks(const mill::s3::client& s3, std::size_t shards) {
  return s3.list(prefix) | mill::take(shards) | mill::fetch(s3, ahead);
}
mill::stream<mill::sample> samples(const mill::s3::client& s3, std::size_t shards) {
  return chunks(s3, shards) | mill::untar() | mill::group_samples();
}

template <class T>
mill::task<std::uint64_t> drain(mill::stream<T> items) {
  std::uint64_t total = 0;
  while (std::optional<T> item = co_await items.next()) total += byte_size(*item);
  co_return total;
}

struct memory {
  double rss_before = 0, rss_after = 0, bytes = 0, faults_beyond_slabs = 0;
};

/// One pass on a fresh loop; called in a process of its own.
memory one_pass(const mill::s3::client& s3, bool on_a_thread, std::size_t budget) {
  bench::pin(1);
  memory m;
  m.rss_before = bench::peak_rss();
  const bench::cost c = bench::measure([&] {
    if (on_a_thread) {
      std::uint64_t total = 0;
      mill::run_options how;
      how.prefetch_bytes = mill::MiB;
      how.budget = budget;
      how.show = mill::progress::off;
      constexpr mill::fetch_options wide{.shards = 8, .window = 30 * mill::MiB, .part = part_bytes};
      auto all = s3.list(prefix) | mill::fetch(s3, wide) | mill::untar() | mill::group_samples();
      for (const mill::sample& s : mill::run(std::move(all), how)) total += byte_size(s);
      return total;
    }
    const auto loop = mill::make_event_loop();
    return mill::block_on(*loop, drain(samples(s3, stored_shards)));
  });
  m.rss_after = bench::peak_rss();
  m.bytes = c.bytes;
  m.faults_beyond_slabs = c.faults;
  return m;
}

void speed(const mill::s3::client& s3, std::size_t shards) {
  const auto loop = mill::make_event_loop();
  bench::contender a("list | fetch", [&] { return mill::block_on(*loop, drain(chunks(s3, shards))); });
  bench::contender b("list | fetch | untar | group_samples",
                     [&] { return mill::block_on(*loop, drain(samples(s3, shards))); });
  bench::take_turns({&a, &b});
  bench::print_table({&a, &b});
  bench::goal_at_least("GB/s, samples / fetch alone", bench::ratio(b.gb_per_second, a.gb_per_second), 0.90);
  bench::goal_at_most("CPU s/GB, samples / fetch alone", bench::ratio(b.cpu_per_gb, a.cpu_per_gb), 1 / 0.90);
}

void footprint(const mill::s3::client& s3) {
  constexpr double mb = 1e-6;
  std::printf("\nmemory, %zu shards of 100 MB, each line in a process of its own\n", stored_shards);
  const double slots = static_cast<double>(ahead.bytes());
  const memory narrow = bench::in_child([&] { return one_pass(s3, false, 0); });
  std::printf("  %.2f GB through 8 slots of 8 MiB: %.0f minor faults per GB, first touch of the slots included\n",
              narrow.bytes * 1e-9, narrow.faults_beyond_slabs / narrow.bytes * 1e9);
  bench::goal_at_most("peak RSS beyond the slots", (narrow.rss_after - slots) * mb, 32 * 1.048576, "MB");
  const memory budgeted = bench::in_child([&] { return one_pass(s3, true, 256000000); });
  bench::goal_at_most("peak RSS with run({.budget = 256 MB}), 253 MB declared", budgeted.rss_after * mb, 300, "MB");
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t shards = static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 20);
  bench::print_machine();
  const bench::served server(false, fill);
  bench::pin(1);
  const mill::s3::client s3 = server.client();
  footprint(s3);
  std::printf("\nspeed\n");
  speed(s3, shards);
}
