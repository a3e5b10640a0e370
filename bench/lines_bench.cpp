// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Text lines per second: fetch | lines in batches of 512 beside a bare epoll loop that only receives the same parts and
// beside fetch alone, in turns. Shards of 156 MB, lines of 1.6 KB: the data of the published measurement of torchdata's
// S3FileLoader (276,921 lines/s at batch 512; on hardware that is not named, against S3 itself), which stands beside
// ours for scale. Server in a process of its own on core 0, client on core 1.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/lines_bench.cpp -o lines_bench -lcurl -luring -larchive
//   -lssl -lcrypto -lexpat
//
//   lines_bench [shards per round, default 12]

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/raw_client.hpp"
#include "bench/common/served.hpp"
#include "bench/common/text.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t part_bytes = 8 * mill::MiB;
constexpr std::size_t shard_bytes = bench::text_bytes;
constexpr std::size_t stored_shards = 3;
constexpr double published_lines = 276921;

std::string key(std::size_t i) { return "t" + std::to_string(i % stored_shards); }

void fill(mill::s3_server::background& server) {
  for (std::size_t i = 0; i < stored_shards; ++i) server.put("b", key(i), bench::make_text(i + 1));
}

mill::stream<mill::chunk> chunks(const mill::s3::client& s3, std::size_t shards) {
  std::vector<mill::shard> known;
  for (std::size_t i = 0; i < shards; ++i) known.emplace_back("s3://b/" + key(i), std::uint64_t(shard_bytes));
  return mill::from_range(std::move(known)) | mill::fetch(s3, {.shards = 8, .window = part_bytes, .part = part_bytes});
}

mill::task<std::uint64_t> drain(mill::stream<mill::chunk> items) {
  std::uint64_t total = 0;
  while (std::optional<mill::chunk> c = co_await items.next()) total += c->data.size();
  co_return total;
}
mill::task<std::uint64_t> count(mill::stream<mill::line_batch> batches, std::uint64_t& lines) {
  std::uint64_t total = 0;
  while (std::optional<mill::line_batch> b = co_await batches.next()) {
    lines += b->size();
    total += byte_size(*b) + b->size();  // the line feeds
  }
  co_return total;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t shards = static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 12);
  bench::print_machine();
  const bench::served server(false, fill);
  bench::pin(1);
  const mill::s3::client s3 = server.client();
  std::vector<bench::range> all;
  for (std::size_t i = 0; i < shards; ++i) bench::add_parts(all, "/b/" + key(i), shard_bytes, part_bytes);
  bench::raw_client raw(server.port, 8);
  const auto loop = mill::make_event_loop();
  bench::contender a("bare epoll, recv into slabs",
                     [&] { return raw.fetch(all, mill::slab_pool(part_bytes), [](const mill::bytes&) {}); });
  bench::contender b("fetch", [&] { return mill::block_on(*loop, drain(chunks(s3, shards))); });
  std::uint64_t lines = 0;
  bench::contender c("fetch | lines, batch 512", [&] {
    lines = 0;
    return mill::block_on(*loop, count(chunks(s3, shards) | mill::lines({.batch = 512}), lines));
  });
  bench::take_turns({&a, &b, &c});
  if (a.last.bytes != b.last.bytes || a.last.bytes != c.last.bytes) {
    std::fprintf(stderr, "bytes differ: %.0f %.0f %.0f\n", a.last.bytes, b.last.bytes, c.last.bytes);
    return 1;
  }
  bench::print_table({&a, &b, &c});
  bench::goal_at_least("GB/s, fetch | lines / bare recv", bench::ratio(c.gb_per_second, a.gb_per_second), 0.60);
  bench::goal_at_most("CPU s/GB, fetch | lines / bare recv", bench::ratio(c.cpu_per_gb, a.cpu_per_gb), 1 / 0.60);
  const bench::figure& rate = c.gb_per_second;
  const double per_gb = static_cast<double>(lines) / c.last.bytes * 1e9;
  std::printf("  %.0f lines/s (%.0f - %.0f), %.0f per CPU second; torchdata's S3FileLoader published %.0f\n",
              rate.median() * per_gb, rate.lowest() * per_gb, rate.highest() * per_gb, per_gb / c.cpu_per_gb.median(),
              published_lines);
}
