// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/tracks_advice.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/order/shuffle_quality.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/detail/reading_estimate.hpp>
#include <millrace/train/detail/slice_piece.hpp>
#include <millrace/train/epoch_plan.hpp>
#include <millrace/train/epochs_options.hpp>

#include "tests/support/catch.hpp"
#include "tests/train/epochs_data.hpp"

using namespace millrace;
using test::delivered_by;
using test::tar_dataset;

namespace {

/// An index of about so many bytes in four shards, of samples of `size` bytes with their headers, a multiple of 512.
index_set set_of(std::uint64_t bytes, std::uint64_t size) {
  std::vector<shard_index> all;
  for (const char* const name : {"a.tar", "b.tar", "c.tar", "d.tar"}) {
    tar_index_builder builder(name, name, tar_index_builder::checksums::none);
    std::uint64_t at = 0;
    for (std::uint64_t i = 0; i < bytes / size / 4; ++i, at += size) {
      tar::entry e;
      e.name = std::to_string(i) + ".bin";
      e.header_offset = at;
      e.data_offset = at + 512;
      e.size = size - 512;
      builder.add(e);
    }
    all.push_back(builder.finish(at + 1024, "\"v1\""));
  }
  return index_set(std::move(all));
}

/// The defaults of epochs() for so many ranks.
order_options defaults_of(const index_set& set, std::uint64_t world) {
  const std::uint64_t slice = default_slice(set, world);
  return {.tracks = default_tracks(set, slice, world), .slice = slice};
}

/// The bytes that an epoch reads for each byte of samples, track by track.
double read_times(const index_set& set, const order_options& how, std::uint64_t world) {
  const sample_order order = set.order(7, 0, how);
  const epochs_options reading;
  const std::uint64_t mean = set.sample_bytes() / set.samples() + 1;
  const std::uint64_t piece =
      detail::samples_of_piece(default_bytes(set, how, world), how.tracks, world, mean, how.slice);
  std::uint64_t read = 0;
  for (std::uint64_t t = 0; t < how.tracks; ++t) {
    for (std::uint64_t at = 0; at < order.track(t).length;) {
      const std::uint64_t count = std::min(piece, detail::left_of_slice(order, t, at));
      detail::slice_piece one(set, order, t, at, count, reading.part, reading.gap);
      for (const detail::slice_piece::range& r : one.ranges()) read += r.length();
      at += count;
    }
  }
  return static_cast<double>(read) / static_cast<double>(set.sample_bytes());
}

}  // namespace

TEST_CASE("the defaults read at most 1.1 times the bytes of small data, in as many tracks as a batch mixes well") {
  for (const std::uint64_t megabytes : {24u, 72u, 200u}) {
    for (const std::uint64_t size : {1024u, 8192u, 103936u}) {
      const index_set set = set_of(megabytes * 1'000'000, size);
      for (const std::uint64_t world : {1u, 8u, 16u}) {
        const order_options how = defaults_of(set, world);
        INFO(megabytes << " MB of " << size << ", " << world << " ranks: " << how.tracks << " tracks of " << how.slice);
        const double times = read_times(set, how, world);
        CHECK(times <= 1.1);
        CHECK(set.sample_bytes() / (set.samples() / how.slice) <= 2 * MiB);
        CHECK(how.tracks >= std::min<std::uint64_t>(16, megabytes / 2));
        const shuffle_quality quality = shuffle_quality::of(set.order(7, 0, how), 64, world);
        CHECK(quality.mates_of_step < 1.2);
        // The plan says the same, of a few tracks.
        const epoch_plan plan = epoch_plan::of(
            set, {.world = world, .batch = 64, .seed = 7, .order = how, .memory = default_bytes(set, how, world)});
        CHECK(plan.read_times == Approx(times).margin(0.03));
      }
    }
  }
}

TEST_CASE("the defaults of large data are what the memory holds") {
  const index_set small = set_of(1'000'000'000, 1024);
  CHECK(defaults_of(small, 1).slice == small.slice());
  CHECK(defaults_of(small, 1).tracks == 192);  // 96 MiB of 512 KiB
  const index_set images = set_of(1'000'000'000, 103936);
  CHECK(defaults_of(images, 1).slice == 16);
  CHECK(defaults_of(images, 1).tracks == 24);  // 48 MiB of 2 MiB
  // With 16 ranks each has 24 tracks all the same, or 60, of shorter slices.
  CHECK(defaults_of(images, 16).tracks >= 24 * 16);
  const index_set many = set_of(16'000'000'000, 1039360);
  CHECK(defaults_of(many, 16).slice == 2);
  CHECK(defaults_of(many, 16).tracks == 24 * 16);
  // An estimate of long tracks counts their ends as what they are.
  CHECK(detail::reading_estimate(small, small.order(7, 0, defaults_of(small, 1)), 1, 256 * MiB, 8 * MiB, 256 * KiB)
            .bytes == Approx(read_times(small, defaults_of(small, 1), 1)).margin(0.02));
}

TEST_CASE("ranks read at most 1.1 times small data, their starts included, and a state keeps the slices it has") {
  const tar_dataset data(std::vector<std::size_t>(12, 1000), 800);
  std::uint64_t size = 0;  // of the shards, with the padding between samples
  for (const auto& [url, content] : data.store->objects) size += content.size();
  const auto of_all = [&](std::uint32_t world, std::uint64_t slice, std::uint64_t tracks) {
    data.store->requests = data.store->read_bytes = 0;
    for (std::uint32_t r = 0; r < world; ++r) {
      test::settings o{.seed = 5, .epochs = 1, .batch = 16, .rank = {.index = r, .world_size = world}};
      o.slice = slice;
      o.tracks = tracks;
      delivered_by(data.open(o), 16);
    }
    return static_cast<double>(data.store->read_bytes) / static_cast<double>(size);
  };
  REQUIRE(size > 20'000'000);
  for (const std::uint32_t world : {1u, 8u}) {
    INFO(world << " ranks");
    CHECK(of_all(world, 0, 0) <= 1.1);
    CHECK(of_all(world, 256, 16) > 1.25);  // as the defaults were before
  }

  // A state of other slices and tracks goes on in its order, on any number of ranks.
  test::settings o{.seed = 5, .epochs = 1, .batch = 16};
  o.slice = 256;
  o.tracks = 16;
  const test::delivered begun = delivered_by(data.open(o), 16, 10);
  const std::vector<std::string> order = data.order(5, 0, {.tracks = 16, .slice = 256});
  o.slice = o.tracks = 0;
  o.resume = begun.state;
  o.rank.world_size = 2;
  const test::delivered resumed = delivered_by(data.open(o), 16, 2);
  CHECK(epoch_state::parse(resumed.state).slice == 256);
  CHECK(epoch_state::parse(resumed.state).tracks == 16);
  std::vector<std::string> expected, got;
  const rank_share share(16, 0, 2);
  for (const std::uint64_t begin : {160u, 192u}) {
    for (const std::uint64_t g : share.positions({begin, 32})) expected.push_back(order[static_cast<std::size_t>(g)]);
  }
  for (const auto& [place, key] : resumed.samples) got.push_back(key);
  CHECK(got == expected);
}

namespace {

/// Takes a sample each so many microseconds.
task<void> take_slowly(stream<sample> in, std::int64_t each) {
  while (const std::optional<sample> s = co_await in.next()) co_await sleep_for(std::chrono::microseconds(each));
}

}  // namespace

TEST_CASE("a rank that does not wait for its store makes the requests and reads the bytes of the plan") {
  const tar_dataset data(std::vector<std::size_t>(4, 1000), 30000);
  data.store->host_name = "far";
  data.store->first_byte = std::chrono::milliseconds(25);
  data.store->rate = 30'000'000;
  for (const std::uint32_t world : {1u, 2u}) {
    test::settings o{.seed = 5, .batch = 8, .rank = {.index = 0, .world_size = world}};
    o.slice = 128;  // 2 MB, of which the highest rate would take parts
    o.tracks = 2;
    const dataset known(data.store, data.indexes, {.prefix = data.prefix, .slice = o.slice});
    const epoch_plan plan = epoch_plan::of_training(known, o.training());
    CHECK(plan.cost == 0);  // no network
    CHECK(plan.limit_seconds == 0);
    double requests = 0, bytes = 0;  // of an epoch, starts aside
    for (std::uint32_t r = 0; r < world; ++r) {
      o.rank.index = r;
      for (const std::uint64_t epochs : {1u, 3u}) {
        o.epochs = epochs;
        data.store->requests = data.store->read_bytes = 0;
        testing::virtual_loop loop;
        block_on(loop, take_slowly(data.open(o), 4000));
        const double sign = epochs == 1 ? -0.5 : 0.5;
        requests += sign * static_cast<double>(data.store->requests);
        bytes += sign * static_cast<double>(data.store->read_bytes);
      }
    }
    INFO(world << " ranks");
    CHECK(static_cast<double>(plan.requests) == Approx(requests).epsilon(0.1));
    CHECK(static_cast<double>(plan.bytes) == Approx(bytes).epsilon(0.1));
  }
}
