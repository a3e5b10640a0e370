// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/order/sample_order.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/order/rank_share.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using detail::mix64;

namespace {

using numbers = std::vector<std::uint64_t>;

std::shared_ptr<const shard_counts> counted(const numbers& counts) {
  return std::make_shared<const shard_counts>(counts);
}
std::uint64_t number_of(const sample_order& o, sample_place p) {
  return o.counts().begin(static_cast<std::size_t>(p.shard)) + p.ordinal;
}
const numbers seven{913, 1000, 50, 2000, 1000, 777, 1260};

/// Goes through steps, each of some world and batch; every position must be taken once, batches as equal as they can
/// be.
void check_steps(std::uint64_t tracks, std::uint64_t samples, const std::vector<numbers>& worlds_and_batches) {
  numbers taken(static_cast<std::size_t>(samples), 0);
  std::uint64_t at = 0;
  for (std::size_t i = 0; at < samples; ++i) {
    const std::uint64_t world = worlds_and_batches[i % worlds_and_batches.size()][0];
    const std::uint64_t batch = worlds_and_batches[i % worlds_and_batches.size()][1];
    const order_step step = step_at(samples, at, batch, world);
    REQUIRE(step.begin == at);
    std::uint64_t least = UINT64_MAX;
    std::uint64_t most = 0;
    for (std::uint64_t r = 0; r < world; ++r) {
      const rank_share share(tracks, r, world);
      const numbers mine = share.positions(step);
      REQUIRE(mine.size() == share.size(step));
      REQUIRE(std::is_sorted(mine.begin(), mine.end()));
      for (const std::uint64_t g : mine) ++taken.at(static_cast<std::size_t>(g));
      least = std::min<std::uint64_t>(least, mine.size());
      most = std::max<std::uint64_t>(most, mine.size());
    }
    REQUIRE(most - least <= 1);
    REQUIRE(most <= batch);
    if (step.count == batch * world) REQUIRE(least == batch);
    at += step.count;
  }
  CHECK(at == samples);
  CHECK(std::all_of(taken.begin(), taken.end(), [](std::uint64_t n) { return n == 1; }));
}

}  // namespace

TEST_CASE("permutations are those of the contract") {
  struct known {
    std::uint64_t size, key, digest;
  };
  // Computed by the model that the order was designed with.
  const known all[] = {
      {1u, 5u, 0xa706dd2f4d197e6fu},
      {2u, 1u, 0x66f6a8b13ccc162cu},
      {5u, 9u, 0xa41120f6ee34e7deu},
      {16u, 3u, 0xef7d2d1057f3d05bu},
      {19u, 7u, 0x3afb133da640c3b5u},
      {32u, 1u, 0x2e7473c4f22fd910u},
      {100u, 2u, 0xab516f30826cb2c9u},
      {1000u, 1u, 0x71d848d12ab45dc0u},
      {65536u, 11u, 0x2e87c88681256087u},
      {100003u, 4u, 0x9971da5497a9ccf6u},
      {281474976710651u, 77u, 0x53a0fd7ddce5d799u},
  };
  for (const known& k : all) {
    INFO("size " << k.size << ", key " << k.key);
    const permutation p(k.size, k.key);
    std::uint64_t digest = 0;
    for (std::uint64_t x = 0; x < std::min<std::uint64_t>(k.size, 5000); ++x) digest += mix64(x ^ mix64(p(x)));
    CHECK(digest == k.digest);
  }
  const permutation p(32, 1);
  numbers first;
  for (std::uint64_t x = 0; x < 10; ++x) first.push_back(p(x));
  CHECK(first == numbers{6, 9, 21, 10, 25, 24, 14, 11, 2, 23});
  CHECK_THROWS_AS(permutation(permutation::most + 1, 0), configuration_error);
}

TEST_CASE("a permutation has every number once") {
  for (std::uint64_t n : {1u, 2u, 3u, 15u, 16u, 17u, 31u, 257u, 1000u}) {
    numbers seen(static_cast<std::size_t>(n), 0);
    const permutation p(n, n);
    for (std::uint64_t x = 0; x < n; ++x) ++seen.at(static_cast<std::size_t>(p(x)));
    CHECK(std::all_of(seen.begin(), seen.end(), [](std::uint64_t k) { return k == 1; }));
  }
}

TEST_CASE("a sample's number in a dataset tells its shard") {
  for (const numbers& counts :
       {numbers{5}, numbers{0, 0, 3, 0, 1, 0}, seven, numbers(1000, 1), numbers{100000, 1, 1, 0}}) {
    const shard_counts c(counts);
    REQUIRE(c.shards() == counts.size());
    REQUIRE(c.samples() == std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
    std::uint64_t x = 0;
    for (std::uint64_t s = 0; s < counts.size(); ++s) {
      CHECK(c.count(static_cast<std::size_t>(s)) == counts[static_cast<std::size_t>(s)]);
      for (std::uint64_t k = 0; k < counts[static_cast<std::size_t>(s)]; ++k, ++x) {
        if (!(c.find(x) == sample_place{s, k})) FAIL("sample " << x << " was found in shard " << c.find(x).shard);
      }
    }
  }
  CHECK(shard_counts(numbers{}).samples() == 0);
  CHECK(shard_counts(numbers{0, 0}).shards() == 2);
  CHECK_THROWS_AS(shard_counts(numbers{permutation::most, 1}), configuration_error);
  CHECK_THROWS_AS(shard_counts(numbers{UINT64_MAX, UINT64_MAX}), configuration_error);
}

TEST_CASE("the order is that of the contract") {
  struct known {
    numbers counts;
    std::uint64_t seed, epoch, tracks, slice, digest;
    std::vector<sample_place> first;
  };
  // Computed by the model that the order was designed with.
  const std::vector<known> all{
      {{5, 3, 8}, 7, 3, 6, 4, 0x4f9340130f8d8319u, {{2, 7}, {2, 6}, {0, 4}, {0, 2}}},
      {{1}, 1, 0, 960, 32, 0xa706dd2f4d197e6fu, {{0, 0}}},
      {{3, 0, 5, 101}, 7, 3, 960, 32, 0x4c13c26691c4c7b1u, {{3, 44}, {3, 49}, {3, 48}, {3, 56}}},
      {{0, 0, 7, 0}, 2, 1, 3, 1, 0xf80b2276898f9a29u, {{2, 6}, {2, 4}, {2, 3}, {2, 5}}},
      {seven, 7, 3, 960, 32, 0x7495b19cdd47a8d5u, {{4, 84}, {4, 85}, {4, 92}, {4, 100}}},
      {seven, 8, 0, 48, 38, 0x7e152cb834bf8a18u, {{3, 644}, {4, 158}, {3, 1890}, {5, 551}}},
      {numbers(97, 17), 123456789012345678, 99, 30, 7, 0x0d7849175c03a6e3u, {{36, 9}, {56, 13}, {87, 13}, {95, 2}}},
      {numbers(300, 100), 7, 0, 97, 256, 0x49d797d0784ec38eu, {{145, 37}, {52, 47}, {167, 44}, {168, 9}}},
      {{10003}, 7, 1, 7, 1, 0x19bdfeac3eda4f37u, {{0, 4215}, {0, 3583}, {0, 6123}, {0, 6243}}},
  };
  for (const known& k : all) {
    INFO("seed " << k.seed << ", tracks " << k.tracks << ", slice " << k.slice);
    const sample_order o(counted(k.counts), k.seed, k.epoch, {.tracks = k.tracks, .slice = k.slice});
    std::uint64_t digest = 0;
    for (std::uint64_t g = 0; g < o.size(); ++g) digest += mix64(g ^ mix64(number_of(o, o.at(g))));
    CHECK(digest == k.digest);
    for (std::size_t g = 0; g < k.first.size(); ++g) CHECK(o.at(g) == k.first[g]);
  }
  const sample_order large(counted(numbers(1281, 1000)), 7, 3);
  const std::vector<sample_place> first{{1219, 247}, {922, 525}, {793, 435}, {1146, 83},
                                        {493, 513},  {814, 839}, {543, 260}, {279, 482}};
  for (std::size_t g = 0; g < first.size(); ++g) CHECK(large.at(g) == first[g]);
}

TEST_CASE("an epoch has every sample once, whatever its shape") {
  rng random(11);
  for (int i = 0; i < 300; ++i) {
    numbers counts;
    for (std::uint64_t n = 1 + random.below(12); n > 0; --n) counts.push_back(random.below(60));
    const order_options options{.tracks = 1 + random.below(100), .slice = 1 + random.below(25)};
    const sample_order o(counted(counts), random.next(), random.below(99), options);
    numbers seen(static_cast<std::size_t>(o.size()), 0);
    for (std::uint64_t g = 0; g < o.size(); ++g) ++seen.at(static_cast<std::size_t>(number_of(o, o.at(g))));
    REQUIRE(std::all_of(seen.begin(), seen.end(), [](std::uint64_t k) { return k == 1; }));
  }
}

TEST_CASE("a cursor gives the samples of its track, from any of them on") {
  const sample_order o(counted(seven), 5, 2, {.tracks = 48, .slice = 38});
  for (const std::uint64_t taken : {0u, 1u, 37u, 100u}) {
    for (std::uint64_t t = 0; t < o.tracks(); ++t) {
      track_cursor along(o, t, taken);
      REQUIRE(along.left() == o.track(t).length - taken);
      for (std::uint64_t g = taken * 48 + t; g < o.size(); g += 48) {
        REQUIRE(along.left() > 0);
        REQUIRE(along.next() == o.at(g));
      }
      CHECK(along.left() == 0);
    }
  }
  CHECK(track_cursor(o, 0, 1000000).left() == 0);
  CHECK(track_cursor(sample_order(counted({0, 0}), 1, 1), 3).left() == 0);
}

TEST_CASE("a track reads its slices one after the other") {
  const sample_order o(counted(seven), 5, 2, {.tracks = 16, .slice = 32});
  for (std::uint64_t t = 0; t < o.tracks(); ++t) {
    const sample_order::stretch track = o.track(t);
    track_cursor along(o, t);
    for (std::uint64_t k = 0; k < track.length; ++k) {
      const std::uint64_t p = track.begin + (o.rotation(t) + k) % track.length;
      const sample_order::stretch slice = o.slice_at(p).samples;
      const std::uint64_t x = number_of(o, along.next());
      REQUIRE((x + o.size() - slice.begin) % o.size() < slice.length);
    }
  }
  numbers seen(static_cast<std::size_t>(o.size()), 0);
  for (std::uint64_t p = 0; p < o.size(); p += 32) {
    const sample_order::stretch slice = o.slice_at(p).samples;
    for (std::uint64_t i = 0; i < slice.length; ++i) ++seen[static_cast<std::size_t>((slice.begin + i) % o.size())];
  }
  CHECK(std::all_of(seen.begin(), seen.end(), [](std::uint64_t k) { return k == 1; }));
}

TEST_CASE("slices are groups of samples that are read together") {
  rng draw(3, 0, 1);
  for (int round = 0; round < 30; ++round) {
    numbers counts;
    numbers groups;
    for (std::uint64_t shard = 1 + draw.below(6); shard > 0; --shard) {
      counts.push_back(0);
      for (std::uint64_t g = draw.below(9); g > 0; --g) {
        groups.push_back(1 + draw.below(round % 3 == 0 ? 1 : 70));
        counts.back() += groups.back();
      }
    }
    if (groups.empty()) continue;
    const auto all = std::make_shared<const shard_counts>(counts, groups);
    const sample_order o(all, 5, static_cast<std::uint64_t>(round), {.tracks = 1 + draw.below(9), .groups = true});
    REQUIRE(o.by_groups());
    numbers times(static_cast<std::size_t>(o.size()), 0);
    numbers visits(groups.size(), 0);
    for (std::uint64_t t = 0; t < o.tracks(); ++t) {
      track_cursor along(o, t);
      std::size_t before = SIZE_MAX;
      for (std::uint64_t k = 0; along.left() != 0; ++k) {
        const sample_place place = along.next();
        REQUIRE(o.at(k * o.tracks() + t) == place);
        const std::uint64_t x = all->begin(static_cast<std::size_t>(place.shard)) + place.ordinal;
        ++times[static_cast<std::size_t>(x)];
        const auto& begins = all->groups();
        const auto group =
            static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), x) - begins.begin() - 1);
        if (group != before) ++visits[group];
        before = group;
      }
    }
    CHECK(std::all_of(times.begin(), times.end(), [](std::uint64_t n) { return n == 1; }));
    // Each group is read once, and once more for each border of two tracks that it is on.
    std::uint64_t visited = 0;
    for (const std::uint64_t n : visits) visited += n;
    CHECK(visited < groups.size() + o.tracks());
  }
  const auto all = std::make_shared<const shard_counts>(numbers{6}, numbers{2, 4});
  CHECK(!sample_order(all, 1, 1).by_groups());
  CHECK_THROWS_AS(sample_order(all, 1, 1, {.tracks = 2, .hosts = 2, .groups = true}), configuration_error);
  CHECK(!sample_order(counted({6}), 1, 1, {.groups = true}).by_groups());
  CHECK_THROWS_AS(shard_counts(numbers{6}, numbers{2, 3}), usage_error);
}

TEST_CASE("what cannot be an order is refused") {
  const auto c = counted({10});
  CHECK_THROWS_AS(sample_order(c, 1, 1, {.tracks = 0}), configuration_error);
  CHECK_THROWS_AS(sample_order(c, 1, 1, {.tracks = (1u << 24) + 1}), configuration_error);
  CHECK_THROWS_AS(sample_order(c, 1, 1, {.slice = 0}), configuration_error);
  CHECK_THROWS_AS(sample_order(c, 1, 1, {.slice = (1u << 24) + 1}), configuration_error);
  CHECK_THROWS_AS(sample_order(c, 1, 1).at(10), usage_error);
  CHECK_THROWS_AS(sample_order(counted({0}), 1, 1).at(0), usage_error);
}

TEST_CASE("a slice has as many samples as make 4 MiB") {
  CHECK(slice_for(1000, 1000 * 110000) == 16);
  CHECK(slice_for(1000, 1000 * 110000, 4 * MiB) == 32);
  CHECK(slice_for(1000, 1000 * 1024) == 256);
  CHECK(slice_for(1000, 1000 * 1048576) == 2);
  CHECK(slice_for(10, 10ull * 1000000000) == 1);
  CHECK(slice_for(0, 0) == 256);
  CHECK(slice_for(10, 3) == 256);
}

TEST_CASE("the shares of the ranks are those of the contract") {
  struct known {
    std::uint64_t tracks, digest;
  };
  // Computed by the model that the order was designed with.
  const known all[] = {{6, 0x03a7448dbc322417u},  {12, 0x4043f72299c074e2u},  {30, 0xb5edf25595861c83u},
                       {97, 0x060a34c016d0a212u}, {960, 0x70e17895add1c077u}, {3840, 0x1bf552eb5c411734u}};
  for (const known& k : all) {
    std::uint64_t digest = 0;
    for (const std::uint64_t w : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 13u, 64u, 100u, 1000u}) {
      const order_step steps[] = {
          {0, w * 4}, {17, w * 4}, {1000, w * 3 - 1}, {12345, std::max<std::uint64_t>(1, w / 2)}, {5, w * 100}};
      for (const order_step& s : steps) {
        numbers ranks{0, w / 3, w / 2, w - 1};
        ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
        for (const std::uint64_t r : ranks) {
          for (const std::uint64_t g : rank_share(k.tracks, r, w).positions(s)) {
            digest += mix64(mix64(mix64(mix64(g) ^ r) ^ w) ^ s.begin);
          }
        }
      }
    }
    INFO("tracks " << k.tracks);
    CHECK(digest == k.digest);
  }
  std::vector<numbers> shares;
  for (std::uint64_t r = 0; r < 5; ++r) shares.push_back(rank_share(12, r, 5).positions({3, 10}));
  CHECK(shares == std::vector<numbers>{{4, 12}, {6, 8}, {5, 10}, {3, 9}, {7, 11}});
}

TEST_CASE("every position is one rank's, in batches of one size, for any number of ranks") {
  for (const std::uint64_t world : {1u, 2u, 3u, 4u, 6u, 8u, 64u}) {
    for (const std::uint64_t batch : {1u, 7u, 32u}) check_steps(960, 7000, {{world, batch}});
    check_steps(96, 109, {{world, 4}});
    check_steps(7, 5000, {{world, 5}});
  }
  check_steps(960, 40000, {{1000, 8}});
}

TEST_CASE("a training goes on anywhere with another number of ranks, and every sample comes once") {
  rng random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<numbers> worlds;
    for (int k = 0; k < 6; ++k) worlds.push_back({1 + random.below(20), 1 + random.below(9)});
    const std::uint64_t tracks[] = {1, 2, 6, 7, 12, 30, 48, 60, 97};
    check_steps(tracks[random.below(9)], random.below(700), worlds);
  }
}

TEST_CASE("with the global batch kept, another number of ranks trains on the same global batches") {
  const sample_order o(counted(seven), 7, 0, {.tracks = 96, .slice = 8});
  for (std::uint64_t begin = 0; begin < o.size(); begin += 48) {
    numbers of[3];
    const std::uint64_t worlds[] = {4, 6, 5};
    for (std::size_t i = 0; i < 3; ++i) {
      const order_step step = step_at(o.size(), begin, 48, 1);
      for (std::uint64_t r = 0; r < worlds[i]; ++r) {
        const numbers mine = rank_share(o.tracks(), r, worlds[i]).positions(step);
        of[i].insert(of[i].end(), mine.begin(), mine.end());
      }
      std::sort(of[i].begin(), of[i].end());
    }
    CHECK(of[0] == of[1]);
    CHECK(of[0] == of[2]);
  }
}

TEST_CASE("a rank keeps its tracks where their number is divided by the ranks'") {
  const rank_share share(960, 3, 8);
  for (const std::uint64_t g : share.positions({1003, 800})) CHECK(g % 960 % 8 == 3);
}

TEST_CASE("the last step is filled up with entries of weight 0") {
  // 7 samples for 4 ranks of 3: 2, 2, 2 and 1.
  const order_step last = step_at(7, 0, 3, 4);
  CHECK(last.count == 7);
  double sum = 0;
  for (std::uint64_t r = 0; r < 4; ++r) {
    const std::vector<float> w = rank_share(12, r, 4).weights(last, 3);
    REQUIRE(w.size() == 3);
    CHECK(w[0] == 1.0F);
    CHECK(w[2] == 0.0F);
    sum += std::accumulate(w.begin(), w.end(), 0.0);
  }
  CHECK(sum == 7.0);
  CHECK(steps_from(7, 0, 3, 4) == 1);
  CHECK(steps_from(25, 0, 3, 4) == 3);
  CHECK(steps_from(24, 0, 3, 4) == 2);
  CHECK(steps_from(24, 23, 3, 4) == 1);
  CHECK(steps_from(24, 24, 3, 4) == 0);
  CHECK(step_at(24, 30, 3, 4).count == 0);
  CHECK(step_at(100, 1, UINT64_MAX, 4).count == 99);
  CHECK(steps_from(100, 1, UINT64_MAX, 4) == 1);
}

TEST_CASE("a rank that does not exist is refused") {
  CHECK_THROWS_AS(rank_share(960, 4, 4), configuration_error);
  CHECK_THROWS_AS(rank_share(960, 0, 0), configuration_error);
  CHECK_THROWS_AS(rank_share(0, 0, 1), configuration_error);
  CHECK_THROWS_AS(rank_share((1u << 24) + 1, 0, 1), configuration_error);
}
