// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/epoch_plan.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <millrace/formats/object_samples.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/train/detail/slice_piece.hpp>
#include <millrace/train/detail/training_plan.hpp>
#include <millrace/train/epochs_options.hpp>
#include <millrace/train/tracks_advice.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

std::shared_ptr<const shard_counts> counted(const std::vector<std::uint64_t>& counts) {
  return std::make_shared<const shard_counts>(counts);
}

/// An index of samples with one field each, of these sizes.
shard_index index_of(const std::string& name, const std::vector<std::uint64_t>& sizes) {
  tar_index_builder builder(name, name, tar_index_builder::checksums::none);
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    tar::entry e;
    e.name = std::to_string(i) + ".bin";
    e.header_offset = at;
    e.data_offset = at + 512;
    e.size = sizes[i];
    builder.add(e);
    at += 512 + (sizes[i] + 511) / 512 * 512;
  }
  return builder.finish(at + 1024, "\"v1\"");
}

/// Requests counted one by one: every slice of every track, in every shard that it lies in.
std::uint64_t requests_by_walking(const sample_order& o) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> visits;  // track and slice
  std::uint64_t requests = 0;
  for (std::uint64_t t = 0; t < o.tracks(); ++t) {
    const sample_order::stretch track = o.track(t);
    for (std::uint64_t p = track.begin; p < track.begin + track.length; ++p) visits.emplace(t, o.slice_at(p).on_tape);
  }
  requests = visits.size();
  for (std::uint64_t p = 0; p < o.size(); p += o.slice_at(p).samples.length) {
    const sample_order::stretch slice = o.slice_at(p).samples;
    std::uint64_t before = o.counts().find(slice.begin).shard;
    for (std::uint64_t i = 1; i < slice.length; ++i) {
      const std::uint64_t x = (slice.begin + i) % o.size();
      const std::uint64_t shard = o.counts().find(x).shard;
      if (shard != before || x == 0) ++requests;
      before = shard;
    }
  }
  return requests;
}

}  // namespace

TEST_CASE("a plan counts batches, padding and the samples of a rank") {
  const epoch_plan plan = epoch_plan::of(counted({10, 20, 7}), 3700, {.world = 4, .batch = 3});
  CHECK(plan.indexed);
  CHECK(plan.shards == 3);
  CHECK(plan.samples == 37);
  CHECK(plan.batches == 4);  // 12 a step: 12, 12, 12 and 1
  CHECK(plan.padding == 11);
  CHECK(plan.least_rank_samples == 9);
  CHECK(plan.most_rank_samples == 10);
  CHECK(plan.most_rank_bytes == 1000);
  const epoch_plan even = epoch_plan::of(counted({24}), 2400, {.world = 4, .batch = 3});
  CHECK(even.batches == 2);
  CHECK(even.padding == 0);
  CHECK(even.least_rank_samples == 6);
  CHECK(even.most_rank_samples == 6);
}

TEST_CASE("a plan's requests are those that are made") {
  for (const std::uint64_t tracks : {1u, 4u, 7u, 48u}) {
    for (const std::uint64_t slice : {1u, 8u, 10u, 37u}) {
      for (const std::uint64_t epoch : {0u, 1u, 2u}) {
        const auto counts = counted({100, 0, 33, 250, 1, 1, 64});
        const order_options how{.tracks = tracks, .slice = slice};
        const epoch_plan plan = epoch_plan::of(counts, 449000, {.epoch = epoch, .order = how});
        INFO("tracks " << tracks << ", slice " << slice << ", epoch " << epoch);
        CHECK(plan.requests == requests_by_walking(sample_order(counts, 0, epoch, how)));
      }
    }
  }
}

TEST_CASE("a large data set is planned as it was simulated") {
  const auto counts = counted(std::vector<std::uint64_t>(1281, 1000));
  const std::uint64_t bytes = 1281000ull * 110000;
  const epoch_plan plan = epoch_plan::of(counts, bytes, {.world = 64, .batch = 32, .seed = 7});
  CHECK(plan.slice_visits == 40943);
  CHECK(plan.requests > 40943 + 900);  // a border of shards is a cut of slices sometimes
  CHECK(plan.requests < 40943 + 1300);
  CHECK(plan.quality.mates_of_step == Approx(1.68).epsilon(0.1));
  CHECK(plan.quality.mates_of_batch == Approx(49).epsilon(0.2));
  CHECK(plan.quality.displacement == Approx(0.333).epsilon(0.03));
  REQUIRE(plan.advice.size() == 1);
  CHECK(plan.advice[0] ==
        "There are fewer tracks than samples in a step of all ranks: 3840 tracks would shuffle better.");
  const epoch_plan better =
      epoch_plan::of(counts, bytes, {.world = 64, .batch = 32, .seed = 7, .order = {.tracks = 3840}});
  CHECK(better.quality.mates_of_step == Approx(0.99).epsilon(0.1));
  CHECK(better.quality.mates_of_batch == Approx(1.1).epsilon(0.3));
  CHECK(better.advice.empty());
  CHECK(better.rank_memory == 60ull * 32 * 110000);
  // All shards, and nothing but one.
  CHECK(plan.quality.picture.size() == 64);
  const epoch_plan sorted =
      epoch_plan::of(counted({5000, 5000}), 1, {.batch = 64, .order = {.tracks = 1, .slice = 256}});
  CHECK(sorted.quality.mates_of_step > 1.5);
}

TEST_CASE("the quality of an order is counted over its steps") {
  // One track of slices as long as shards: a step has samples of one shard or two.
  const auto counts = counted(std::vector<std::uint64_t>(50, 100));
  const sample_order o(counts, 7, 0, {.tracks = 1, .slice = 100});
  const shuffle_quality q = shuffle_quality::of(o, 20, 1);
  // By hand: the pairs of one shard in all steps, over what chance gives.
  double pairs = 0;
  double possible = 0;
  for (std::uint64_t begin = 0; begin < o.size(); begin += 20) {
    std::vector<int> of_shard(50, 0);
    for (std::uint64_t g = begin; g < begin + 20; ++g) ++of_shard[static_cast<std::size_t>(o.at(g).shard)];
    for (const int n : of_shard) pairs += n * (n - 1);
    possible += 20 * 19;
  }
  const double chance = 50 * 100 * 99.0 / (5000.0 * 4999.0);
  CHECK(q.mates_of_step == Approx(pairs / possible / chance));
  CHECK(q.mates_of_batch == Approx(q.mates_of_step));
  CHECK(q.mates_of_step > 20);
}

TEST_CASE("a plan says what would be better") {
  const auto counts = counted({100000});
  const auto advice = [&](const plan_options& o) {
    const epoch_plan plan = epoch_plan::of(counts, 100000, o);
    return plan.advice.empty() ? std::string() : plan.advice[0];
  };
  CHECK(advice({.world = 8, .batch = 32}).empty());
  CHECK(advice({.world = 7, .batch = 32}) == "The ranks do not divide the tracks: some slices are read by two ranks.");
  // All orders of one shard are as good.
  CHECK(advice({.world = 160, .batch = 1}).empty());
  const auto of_shards = [](const std::vector<std::uint64_t>& samples, const plan_options& o) {
    return epoch_plan::of(counted(samples), 100000, o);
  };
  CHECK_THAT(of_shards(std::vector<std::uint64_t>(1000, 100), {.batch = 64, .order = {.tracks = 2}}).advice.at(0),
             Catch::Matchers::Contains("There are fewer tracks than samples in a step of all ranks: 960 tracks would "
                                       "shuffle better."));
  // No more tracks than slices are advised: each one more costs a request.
  const auto of_tracks = [&](std::uint64_t tracks) {
    return of_shards({200, 200, 200}, {.batch = 16, .order = {.tracks = tracks, .slice = 64}});
  };
  for (const std::uint64_t tracks : {2u, 4u}) {
    CHECK_THAT(of_tracks(tracks).advice.at(0), Catch::Matchers::Contains(": 9 tracks would shuffle better."));
    CHECK(of_tracks(9).quality.mates_of_step < of_tracks(tracks).quality.mates_of_step);
    CHECK(of_tracks(9).requests <= of_tracks(tracks).requests + 9);
  }
  for (const std::string& sentence : of_tracks(9).advice) {
    CHECK(sentence.find("would shuffle better") == std::string::npos);
  }
  CHECK(advice({.world = 8, .batch = 32, .order = {.slice = 256}}) ==
        "A track is shorter than a slice: some slices are read for several tracks.");
  CHECK(advice({.world = 8, .batch = 32, .order = {.tracks = 3840, .slice = 256}}) ==
        "3840 tracks are many for 100000 samples: a request brings about 23 of the 256 of a slice; with 256 tracks it "
        "would bring about 154, and shuffle less.");
}

TEST_CASE("tracks that are many for a data set are named, with as many as fit") {
  CHECK(tracks_advice(10240, {.tracks = 960, .slice = 32}, 1).empty());
  CHECK_THAT(tracks_advice(10239, {.tracks = 960, .slice = 32}, 1),
             Catch::Matchers::Contains("a request brings about 8 of the 32") &&
                 Catch::Matchers::Contains("with 256 tracks it would bring about 17"));
  CHECK_THAT(tracks_advice(1000, {.tracks = 960, .slice = 256}, 1),
             Catch::Matchers::Contains("brings about 1 of the 256") && Catch::Matchers::Contains("with 2 tracks "));
  CHECK_THAT(tracks_advice(1000, {.tracks = 960, .slice = 256}, 64), Catch::Matchers::Contains("with 64 tracks "));
  CHECK_THAT(tracks_advice(3, {.tracks = 960, .slice = 256}, 1), Catch::Matchers::Contains("with 1 track "));
  CHECK(tracks_advice(1000, {.tracks = 64, .slice = 256}, 64).empty());
  CHECK(tracks_advice(0, {}, 1).empty());
  CHECK(tracks_advice(5, {.tracks = 960, .slice = 1}, 1).empty());  // a request brings one of one in any case
}

TEST_CASE("the default number of tracks follows from samples, sizes and ranks, and the bytes from the tracks") {
  const auto set_of = [](std::uint64_t shards, std::uint64_t samples, std::uint64_t bytes) {
    std::vector<shard_index> all;
    for (std::uint64_t i = 0; i < shards; ++i) {
      all.push_back(index_of(std::to_string(100 + i) + ".tar",
                             std::vector<std::uint64_t>(static_cast<std::size_t>(samples), bytes)));
    }
    return index_set(std::move(all));
  };
  const index_set images = set_of(8, 1000, 103000);
  REQUIRE(images.slice() == 16);
  CHECK(default_tracks(images, 16, 1) == 24);  // 48 MiB of slabs of 2 MiB
  CHECK(default_tracks(images, 4, 16) == 16 * 6);  // 18 slices each
  CHECK(default_tracks(images, 16, 300) == 300);
  CHECK(default_bytes(images, {.tracks = 24, .slice = 16}, 1) == 128 * MiB);
  CHECK(default_bytes(images, {.tracks = 960, .slice = 32}, 1) == 1 * GiB);
  const index_set large = set_of(8, 1000, 1'500'000);
  REQUIRE(large.slice() == 1);
  CHECK(default_bytes(large, {.tracks = 48, .slice = 2}, 1) == 392 * MiB);
  const index_set small = set_of(10, 10000, 1000);
  CHECK(default_tracks(small, 256, 1) == 20);
  CHECK(default_tracks(small, 256, 7) == 7 * 3);
  CHECK(default_tracks(small, 1, 1) == 960);
  CHECK(default_tracks(small, 1, 64) == 64 * 15);
  CHECK(default_tracks(small, 1, 500) == 500 * 8);
  const index_set videos = set_of(2, 100, 50'000'000);
  REQUIRE(videos.slice() == 1);
  CHECK(default_tracks(videos, 1, 1) == 8);
  CHECK(default_bytes(videos, {.tracks = 8, .slice = 1}, 1) == 128 * MiB);
  CHECK(default_tracks(set_of(1, 3, 100), 256, 1) == 1);

  // A sentence says what more of them take: memory, or reading again.
  CHECK(default_tracks_advice(small, {.tracks = 20, .slice = 256}, 1, 64) ==
        "20 tracks, as many as read the data about once, for the 64 samples of a step: about 4 of a step are "
        "neighbours in a shard. Where shards are sorted, by class or by source, give more .tracks: 64 read slices at "
        "both ends of each again, of which it has 6.");
  CHECK(default_tracks_advice(images, {.tracks = 24, .slice = 16}, 1, 64) ==
        "24 tracks, as many as the default .bytes hold, for the 64 samples of a step: about 3 of a step are neighbours "
        "in a shard. Where shards are sorted, by class or by source, give more .tracks: 64 take .bytes of 273 MB.");
  CHECK(default_tracks_advice(images, {.tracks = 24, .slice = 16}, 1, 24).empty());
  CHECK(default_tracks_advice(images, {.tracks = 32, .slice = 16}, 1, 64).empty());   // given
  CHECK(default_tracks_advice(images, {.tracks = 24, .slice = 16}, 1, 256).empty());  // the data are too few
}

TEST_CASE("a plan counts the batches that are taken, and what a small budget costs") {
  const auto counts = counted(std::vector<std::uint64_t>(100, 1000));
  plan_options o{.world = 4, .batch = 25};
  const epoch_plan all = epoch_plan::of(counts, 100000 * 1000, o);
  CHECK(all.batches == 1000);
  o.take_batches = 250;
  const epoch_plan some = epoch_plan::of(counts, 100000 * 1000, o);
  CHECK(some.batches == 250);
  CHECK(some.padding == 0);
  CHECK(some.most_rank_samples == 6250);
  CHECK(some.bytes == 25000 * 1000);
  CHECK(some.requests == (all.requests + 2) / 4);
  o.take_batches = 0;
  o.memory = 1 * GiB;
  CHECK(epoch_plan::of(counts, 100000 * 1000, o).requests == all.requests);
  CHECK(epoch_plan::of(counts, 100000 * 1000, o).advice == all.advice);
  o.memory = 2 * 241 * 1001 * 4;  // four samples of each of 240 slices, twice; a visit reads 26 on average
  const epoch_plan little = epoch_plan::of(counts, 100000 * 1000, o);
  CHECK(little.requests == all.requests + 6 * all.slice_visits);
  CHECK(little.rank_memory <= o.memory);
  REQUIRE(little.advice.size() == all.advice.size() + 1);
  CHECK_THAT(little.advice.back(), Catch::Matchers::Contains("holds 4 of the 32 samples of each slice"));
}

TEST_CASE("the plan says what too little memory for the open slices costs, and what would fit") {
  std::vector<shard_index> all;
  for (int i = 0; i < 60; ++i) {
    all.push_back(index_of(std::to_string(100 + i) + ".tar", std::vector<std::uint64_t>(1000, 29500)));
  }
  const index_set set(std::move(all));
  REQUIRE(set.slice() == 64);
  const order_options order{.tracks = 240, .slice = 128};
  epochs_options o;
  o.bytes = 256 * MiB;  // an eighth of what one rank's slices take, twice
  // Counted over the whole epoch.
  const sample_order whole(set.counts(), 0, 0, order);
  const std::uint64_t piece = detail::samples_of_piece(o.bytes, 240, 1, 30209, 128);
  CHECK(piece == 18);
  std::uint64_t read = 0;
  std::uint64_t requests = 0;
  for (std::uint64_t t = 0; t < 240; ++t) {
    for (std::uint64_t at = 0; at < whole.track(t).length;) {
      const std::uint64_t n = std::min(piece, detail::left_of_slice(whole, t, at));
      detail::slice_piece one(set, whole, t, at, n, o.part, o.gap);
      for (const detail::slice_piece::range& r : one.ranges()) read += r.length(), ++requests;
      at += n;
    }
  }
  CHECK(static_cast<double>(read) > 2 * static_cast<double>(set.sample_bytes()));
  const epoch_plan plan = epoch_plan::of(set, {.batch = 32, .order = order, .memory = o.bytes});
  CHECK(static_cast<double>(plan.bytes) == Approx(static_cast<double>(read)).epsilon(0.05));
  CHECK(static_cast<double>(plan.requests) == Approx(static_cast<double>(requests)).epsilon(0.05));

  const std::string advice = bytes_advice(set, order, 1, o);
  CHECK_THAT(advice, Catch::Matchers::StartsWith("268 MB of memory hold 18 of the 128 samples of each slice"));
  CHECK_THAT(advice, Catch::Matchers::Contains("times the bytes; with .bytes of 1.85 GB") &&
                         Catch::Matchers::Contains("; with 32 tracks ") &&
                         Catch::Matchers::Contains("and it would shuffle less."));
  CHECK(plan.advice.back() == advice);
  // Eight ranks have room, and so has one with as much memory as the plan asked for, or as many tracks.
  CHECK(bytes_advice(set, order, 8, o).empty());
  CHECK(bytes_advice(set, {.tracks = 32, .slice = 128}, 1, o).empty());
  o.bytes = 1800 * MiB;
  CHECK(bytes_advice(set, order, 1, o).empty());
}

TEST_CASE("a plan says dollars, seconds of the store's limit and memory, and the same of longer slices") {
  std::vector<shard_index> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(index_of(std::to_string(100 + i) + ".tar", std::vector<std::uint64_t>(1000, 29184)));
  }
  const index_set set(std::move(all));
  REQUIRE(set.slice() == 64);
  for (const std::uint64_t world : {1u, 5u, 1000u}) {
    plan_options o{.world = world, .batch = 8, .order = {.tracks = 20, .slice = 64}};
    const epoch_plan plan = epoch_plan::of(set, o);
    INFO(world << " ranks: " << plan.text());
    CHECK(plan.cost == Approx(0.0004 / 1000 * static_cast<double>(plan.requests)));
    CHECK(plan.limit_seconds == Approx(static_cast<double>(plan.requests) / 5500));
    CHECK(plan.rank_memory == (20 + world - 1) / world * 64 * 29696);
    CHECK(plan.most_rank_memory == 2 * plan.rank_memory);
    REQUIRE(plan.longer_slice == 256);
    o.order.slice = 256;
    const epoch_plan longer = epoch_plan::of(set, o);
    CHECK(plan.longer_requests == longer.requests);
    CHECK(plan.longer_cost == Approx(longer.cost));
    CHECK(plan.longer_rank_memory == longer.rank_memory);
    CHECK(longer.longer_slice == 0);
    CHECK(longer.longer_cost == 0);
    CHECK_THAT(plan.text(), Catch::Matchers::Contains("requests, $0.0006") &&
                                Catch::Matchers::Contains(" an epoch, 0.30 s at the 5500 a second that a prefix") &&
                                Catch::Matchers::Contains("\nwith .slice = 256: ") &&
                                Catch::Matchers::Contains(", $0.0002") &&
                                Catch::Matchers::Contains(", a rank up to "));
  }
  const epoch_plan other = epoch_plan::of(set, {.batch = 8,
                                                .order = {.tracks = 20, .slice = 64},
                                                .memory = 128 * MiB,
                                                .price_of_1000_requests = 10,
                                                .requests_per_second = 100});
  CHECK(other.most_rank_memory == 128 * MiB);
  CHECK_THAT(other.text(), Catch::Matchers::Contains(", cost 16") &&
                               Catch::Matchers::Contains(" s at the 100 a second that a prefix takes") &&
                               Catch::Matchers::Contains("of open slices, 128.0 MiB with what it reads ahead"));
  CHECK(epoch_plan::of(set, {.batch = 8, .order = {.tracks = 60, .slice = 64}}).longer_slice == 0);  // too many tracks
  CHECK(epoch_plan::of(set, {.batch = 8, .order = {.tracks = 20, .slice = 64}, .requests_per_second = 0})
            .text()
            .find("a prefix takes") == std::string::npos);
}

TEST_CASE("the memory of a plan from indexes is that of the largest slices") {
  std::vector<std::uint64_t> sizes(100, 1000);
  sizes[40] = 50000;
  sizes[41] = 60000;
  std::vector<shard_index> both;
  both.push_back(index_of("b.tar", sizes));
  both.push_back(index_of("a.tar", std::vector<std::uint64_t>(100, 1000)));
  const index_set set(std::move(both));
  CHECK(set[0].name() == "a.tar");
  CHECK(set.find("b.tar") == 1u);
  CHECK_FALSE(set.find("c.tar").has_value());
  CHECK(set.sample_bytes() == 198 * 1512 + 50512 + 60512);
  const epoch_plan plan = epoch_plan::of(set, {.world = 2, .batch = 4, .order = {.tracks = 4, .slice = 4}});
  CHECK(plan.rank_memory == 2 * (50512 + 60512 + 2 * 1512));
  CHECK(plan.bytes == set.sample_bytes());
  CHECK(set.slice() == 256);
}

TEST_CASE("a set of indexes is the same in any order, and another with anything else") {
  const shard_index a = index_of("a.tar", {1, 2, 3});
  const shard_index b = index_of("b.tar", {4});
  const index_set set({a, b});
  CHECK(set.digest() == index_set({b, a}).digest());
  CHECK_FALSE(set.digest() == index_set({a}).digest());
  CHECK_FALSE(set.digest() == index_set({a, index_of("b.tar", {5})}).digest());
  CHECK_FALSE(set.digest() == index_set({a, index_of("c.tar", {4})}).digest());
  CHECK_THROWS_AS(index_set({a, b, a}), index_error);
}

TEST_CASE("a plan without an index deals whole shards") {
  std::vector<shard> shards;
  for (std::uint64_t i = 0; i < 10; ++i) shards.emplace_back("s3://b/" + std::to_string(i), 20 * MiB);
  const epoch_plan plan =
      epoch_plan::of(shards, {.world = 4, .batch = 32, .price_of_1000_requests = 0.4, .price_of_gigabyte = 1});
  CHECK_FALSE(plan.indexed);
  CHECK(plan.bytes == 200 * MiB);
  CHECK(plan.requests == 30);
  CHECK(plan.most_rank_requests == 9);
  CHECK(plan.most_rank_bytes == 60 * MiB);
  CHECK(plan.least_rank_bytes == 40 * MiB);
  CHECK(plan.cost == Approx(0.03 * 0.4 + 0.2097152));
  REQUIRE(plan.advice.size() == 1);
  CHECK_THAT(plan.advice[0], Catch::Matchers::Contains("One rank has 1.20 times the mean"));
  CHECK_THAT(plan.text(),
             Catch::Matchers::Contains("without an index\na rank of 4: 40.0 MiB to 60.0 MiB, about 9 requests, "
                                         "up to 60.0 MiB of memory\n"));
  shards.emplace_back("s3://b/x");
  CHECK_THAT(epoch_plan::of(shards, {}).text(), Catch::Matchers::Contains("Some sizes are not known"));
}

TEST_CASE("a plan is said in a few lines") {
  const epoch_plan plan = epoch_plan::of(
      counted({1000, 1000}), 2000 * 100000,
      {.world = 2, .batch = 16, .price_of_1000_requests = 10, .request_seconds = 0.05, .bytes_per_second = 1e7});
  const std::string text = plan.text();
  CHECK_THAT(text, Catch::Matchers::StartsWith("2 shards, 190.7 MiB, 2000 samples\n63 batches on each of 2 ranks, 16 "
                                               "entries of weight 0\na rank: 1000 samples, about 95.4 MiB"));
  CHECK_THAT(text, Catch::Matchers::Contains("first batch: 0.21 s\n"));
  CHECK_THAT(text, Catch::Matchers::Contains(", cost "));
  CHECK_THAT(text, Catch::Matchers::Contains("shards of the first step: ["));
  CHECK_THROWS_AS(epoch_plan::of(counted({1}), 1, {.world = 0}), configuration_error);
  CHECK_THROWS_AS(epoch_plan::of(counted({1}), 1, {.batch = 0}), configuration_error);
  CHECK(epoch_plan::of(counted({0}), 0, {}).batches == 0);
  CHECK(epoch_plan::of(counted({1}), 100, {}).batches == 1);
}

TEST_CASE("a run advises more tracks than the default ones only where neighbours are known to be alike") {
  const auto advice = [](std::shared_ptr<const shard_format> format) {
    detail::object_index_builder builder(format, "/d/");
    for (int i = 0; i < 8000; ++i) {
      builder.add(shard("/d/" + std::to_string(i / 1000) + '/' + std::to_string(i) + ".jpg", 103000, "\"v1\""));
    }
    const auto indexes = std::make_shared<const index_set>(builder.finish());
    epoch_state order;
    order.slice = 32;
    const detail::training_plan asked({.batch = 64}, order, "");
    const detail::dataset_mix::member data{.indexes = indexes, .prefix = "/d/", .format = format};
    return detail::training_plan(asked, data, files()).advice();
  };
  CHECK_THAT(advice(class_folders()), Catch::Matchers::Contains("give more .tracks: 64 take .bytes of 545 MB"));
  CHECK(advice(object_samples()).empty());
}
