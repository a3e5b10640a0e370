// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What the canonical order of samples costs: nanoseconds a sample for a rank that goes through its tracks, at 10,000
// shards of some 1,000 samples; a position by itself; a rank's share of a step; and what is held. And what an index of
// so many samples costs to read, and what one rank reads beside its samples with a .bytes that holds little of its
// slices (docs/design/index.md). The median of five turns counts.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/order_bench.cpp -o order_bench

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/units.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/train/detail/reading_estimate.hpp>
#include <millrace/train/epochs_options.hpp>

#include "bench/common/measure.hpp"

namespace {

using namespace millrace;

constexpr int turns = 5;

double seconds_since(std::int64_t start) { return static_cast<double>(monotonic_ns() - start) * 1e-9; }

/// Rank 0 of `world` goes through an epoch, position by position, along its tracks.
double ns_along_tracks(const sample_order& o, std::uint64_t world, std::uint64_t& sink) {
  const std::int64_t start = monotonic_ns();
  std::vector<track_cursor> open;
  for (std::uint64_t t = 0; t < o.tracks(); t += world) open.emplace_back(o, t);
  std::uint64_t samples = 0;
  for (bool any = true; any;) {
    any = false;
    for (track_cursor& c : open) {
      if (c.left() == 0) continue;
      const sample_place p = c.next();
      sink += p.shard ^ p.ordinal;
      ++samples;
      any = true;
    }
  }
  return seconds_since(start) * 1e9 / static_cast<double>(samples);
}

double ns_by_position(const sample_order& o, std::uint64_t& sink) {
  const std::int64_t start = monotonic_ns();
  constexpr std::uint64_t count = 1000000;
  for (std::uint64_t i = 0; i < count; ++i) sink += o.at(i * 7919 % o.size()).ordinal;
  return seconds_since(start) * 1e9 / static_cast<double>(count);
}

/// A rank of `world` asks for its share of the steps of an epoch.
double ns_of_shares(const sample_order& o, std::uint64_t world, std::uint64_t batch, std::uint64_t& sink) {
  const rank_share share(o.tracks(), world / 2, world);
  std::vector<std::uint64_t> mine;
  const std::int64_t start = monotonic_ns();
  std::uint64_t samples = 0;
  for (std::uint64_t at = 0; at < o.size() && samples < 1000000;) {
    const order_step step = step_at(o.size(), at, batch, world);
    share.positions(step, mine);
    for (const std::uint64_t g : mine) sink += g;
    samples += mine.size();
    at += step.count;
  }
  return seconds_since(start) * 1e9 / static_cast<double>(samples);
}

/// An index of samples of two fields, the first of some `mean` bytes.
shard_index index_of(std::uint64_t shard, std::uint64_t samples, std::uint64_t mean) {
  const std::string name = std::to_string(100000 + shard) + ".tar";
  tar_index_builder builder(name, name, tar_index_builder::checksums::none);
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < 2 * samples; ++i) {
    tar::entry e;
    e.name = std::to_string(i / 2) + (i % 2 == 0 ? ".jpg" : ".cls");
    e.header_offset = at;
    e.data_offset = at + 512;
    e.size = i % 2 == 0 ? mean / 2 + detail::mix64(at) % mean : 3;
    builder.add(e);
    at += 512 + (e.size + 511) / 512 * 512;
  }
  return builder.finish(at + 1024, "\"v1\"");
}

/// A thousand shards of the ten thousand: a tenth of the samples.
void read_an_index() {
  std::string text;
  for (std::uint64_t i = 0; i < 1000; ++i) index_of(i, 1000, 110000).write(text);
  bench::figure each;
  for (int turn = 0; turn < turns; ++turn) {
    const std::int64_t start = monotonic_ns();
    const index_set set(read_indexes(text, "bench"));
    each.add(seconds_since(start) * 1e9 / static_cast<double>(set.samples()));
  }
  std::printf("an index: %.1f bytes a sample; read and digested in %.1f ns a sample (%.1f .. %.1f)\n",
              static_cast<double>(text.size()) / 1e6, each.median(), each.lowest(), each.highest());
}

void read_beside(std::uint64_t mean) {
  std::vector<shard_index> all;
  const std::uint64_t samples = 110'000'000 / std::max<std::uint64_t>(mean, 110000);
  for (std::uint64_t i = 0; i < 200; ++i) all.push_back(index_of(i, samples, mean));
  const index_set set(std::move(all));
  const auto show = [&](const char* who, std::uint64_t world, std::uint64_t tracks, std::size_t bytes) {
    const sample_order o(set.counts(), 7, 0, {.tracks = tracks, .slice = set.slice()});
    const epochs_options reading;
    const detail::reading_estimate e(set, o, world, bytes, reading.part, reading.gap);
    std::printf("  %s: %.2f requests a sample, %.2f times the bytes\n", who, e.requests, e.bytes);
  };
  std::printf("samples of %llu bytes\n", static_cast<unsigned long long>(mean));
  show("one rank, 960 tracks, 1 GiB", 1, 960, 1 * GiB);
  show("one rank, 960 tracks, 8 GiB", 1, 960, 8 * GiB);
  show("one rank, 120 tracks, 1 GiB", 1, 120, 1 * GiB);
  show("eight ranks, 960 tracks, 1 GiB", 8, 960, 1 * GiB);
}

}  // namespace

int main() {
  std::vector<std::uint64_t> counts;
  for (std::uint64_t i = 0; i < 10000; ++i) counts.push_back(500 + detail::mix64(i) % 1001);
  const auto shards = std::make_shared<const shard_counts>(counts);
  std::printf("%llu samples in %zu shards (median of %d, lowest .. highest)\n",
              static_cast<unsigned long long>(shards->samples()), shards->shards(), turns);
  struct shape {
    std::uint64_t tracks, slice, world;
    bool goal;
  };
  std::uint64_t sink = 0;
  for (const shape& s : {shape{960, 32, 1, true}, shape{960, 32, 8, true}, shape{960, 256, 8, true},
                         shape{960, 38, 8, false}, shape{960, 1, 8, false}, shape{7680, 32, 8, true}}) {
    bench::figure along;
    bench::figure by_position;
    const sample_order o(shards, 7, 3, {.tracks = s.tracks, .slice = s.slice});
    for (int turn = 0; turn < turns; ++turn) {
      along.add(ns_along_tracks(o, s.world, sink));
      by_position.add(ns_by_position(o, sink));
    }
    std::printf("tracks %llu, slice %llu, rank 0 of %llu: %.1f ns a sample (%.1f .. %.1f), any position %.1f ns\n",
                static_cast<unsigned long long>(s.tracks), static_cast<unsigned long long>(s.slice),
                static_cast<unsigned long long>(s.world), along.median(), along.lowest(), along.highest(),
                by_position.median());
    if (s.goal) bench::goal_at_most("ns a sample", along.median(), 50, "");
  }
  const sample_order o(shards, 7, 3);
  for (const std::uint64_t world : {8u, 7u, 100u, 1000u}) {
    bench::figure share;
    for (int turn = 0; turn < turns; ++turn) share.add(ns_of_shares(o, world, 32, sink));
    std::printf("share of a rank of %llu, batch 32: %.1f ns a sample (%.1f .. %.1f)\n",
                static_cast<unsigned long long>(world), share.median(), share.lowest(), share.highest());
  }
  std::printf("held: %zu bytes an order, %zu a shard at most, %zu a track that is open\n", sizeof(sample_order),
              2 * sizeof(std::uint32_t) + sizeof(std::uint64_t), sizeof(track_cursor));
  read_an_index();
  for (const std::uint64_t mean : {30000u, 110000u, 500000u}) read_beside(mean);
  return sink == 1 ? 1 : 0;  // keeps the work from being optimised away
}
