// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/order/sample_mix.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using detail::mix64;

namespace {

using numbers = std::vector<std::uint64_t>;

numbers owners_of(const sample_mix& m, std::uint64_t tracks) {
  numbers all;
  for (std::uint64_t t = 0; t < tracks; ++t) all.push_back(m.owner(t));
  return all;
}

}  // namespace

TEST_CASE("tracks are dealt to datasets as the contract says") {
  struct known {
    numbers weights;
    std::uint64_t tracks, digest;
    numbers shares;
  };
  // Computed by the model that the order was designed with, in whole numbers.
  const std::vector<known> all{
      {{7000, 2000, 995, 5}, 960, 0x224e68aba4ad2ea8u, {672, 192, 95, 1}},
      {{1, 1, 1}, 30, 0xd0d7a2102fa9fbc4u, {10, 10, 10}},
      {{3, 1}, 12, 0xc028142cfa71effeu, {9, 3}},
      {{5}, 7, 0x2c51bb3e2cbb99afu, {7}},
      {{1, 1, 1000}, 12, 0x3b8c1c826289f61fu, {1, 1, 10}},
      {{2, 3, 5, 7}, 97, 0x8493d2524d9498e7u, {11, 17, 29, 40}},
  };
  for (const known& k : all) {
    const sample_mix m(k.weights, numbers(k.weights.size(), 1000), k.tracks);
    std::uint64_t digest = 0;
    const numbers owners = owners_of(m, k.tracks);
    for (std::uint64_t t = 0; t < k.tracks; ++t) digest += mix64(t ^ mix64(owners[static_cast<std::size_t>(t)]));
    INFO("tracks " << k.tracks);
    CHECK(digest == k.digest);
    for (std::size_t d = 0; d < k.shares.size(); ++d) CHECK(m.tracks(d) == k.shares[d]);
  }
  CHECK(owners_of(sample_mix(numbers{3, 1}, numbers{9, 9}, 12), 12) == numbers{0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0});
}

TEST_CASE("weights hold exactly over any tracks positions in a row, and nearly on every rank") {
  const sample_mix m(numbers{7000, 2000, 995, 5}, numbers{100000, 100000, 100000, 100000}, 960, mix_until::forever);
  numbers window(4, 0);
  for (std::uint64_t g = 0; g < 3000; ++g) {
    ++window[m.at(g).dataset];
    if (g >= 960) --window[m.at(g - 960).dataset];
    if (g >= 959) REQUIRE(window == numbers{672, 192, 95, 1});
  }
  for (std::uint64_t r = 0; r < 8; ++r) {
    numbers own(4, 0);
    for (std::uint64_t t = r; t < 960; t += 8) ++own[m.owner(t)];
    CHECK(own[0] >= 82);
    CHECK(own[0] <= 86);
    CHECK(own[1] >= 22);
    CHECK(own[1] <= 26);
  }
}

TEST_CASE("a mix takes each dataset's epochs one after the other, whole, and a track is one dataset's") {
  rng random(3);
  for (int i = 0; i < 40; ++i) {
    const numbers weights{1 + random.below(100), 1 + random.below(100), 1 + random.below(100)};
    const numbers sizes{1 + random.below(90), 1 + random.below(90), 1 + random.below(90)};
    const std::uint64_t tracks[] = {12, 30, 60};
    const std::uint64_t n = tracks[random.below(3)];
    const sample_mix m(weights, sizes, n, mix_until::forever);
    CHECK(m.size() == UINT64_MAX);
    numbers next(3, 0);
    std::map<std::pair<std::size_t, std::uint64_t>, std::uint64_t> home;  // a dataset's own track: its track of the mix
    for (std::uint64_t g = 0; g < n * 12; ++g) {
      const sample_mix::place p = m.at(g);
      REQUIRE(p.epoch * sizes[p.dataset] + p.position == next[p.dataset]);
      REQUIRE(m.find(p.dataset, next[p.dataset]) == g);
      const std::uint64_t own = next[p.dataset]++ % m.tracks(p.dataset);
      REQUIRE(home.emplace(std::pair(p.dataset, own), g % n).first->second == g % n);
    }
  }
}

TEST_CASE("a mix ends at the first end, at the last, or never") {
  rng random(4);
  for (int i = 0; i < 40; ++i) {
    const numbers weights{1 + random.below(20), 1 + random.below(20)};
    const numbers sizes{1 + random.below(200), 1 + random.below(200)};
    const sample_mix first(weights, sizes, 24, mix_until::first_end);
    const sample_mix last(weights, sizes, 24, mix_until::last_end);
    const sample_mix forever(weights, sizes, 24, mix_until::forever);
    // No second epoch before the first end, and one exactly there.
    for (std::uint64_t g = 0; g < first.size(); ++g) REQUIRE(first.at(g).epoch == 0);
    CHECK(forever.at(first.size()).epoch == 1);
    // All samples before the last end, and one of them exactly before it.
    std::set<std::pair<std::size_t, std::uint64_t>> seen;
    for (std::uint64_t g = 0; g < last.size(); ++g) {
      const sample_mix::place p = last.at(g);
      REQUIRE(p == forever.at(g));
      if (g + 1 == last.size()) CHECK(seen.size() + 1 == sizes[0] + sizes[1]);
      seen.emplace(p.dataset, p.position);
    }
    CHECK(seen.size() == sizes[0] + sizes[1]);
    CHECK_THROWS_AS(first.at(first.size()), usage_error);
    CHECK_THROWS_AS(last.at(last.size()), usage_error);
  }
}

TEST_CASE("the rounds of a mix run on through its epochs, which are all of one length") {
  const numbers sizes{31, 50, 7};
  for (const sample_mix& m : {sample_mix(numbers{5, 2, 1}, sizes, 16, mix_until::first_end),
                              sample_mix(numbers{5, 2, 1}, sizes, 16, mix_until::last_end),
                              sample_mix(numbers{5, 2, 1}, sizes, 16, mix_until::forever, 75)}) {
    numbers next(3, 0);
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      const numbers begin = next;
      for (std::uint64_t g = 0; g < m.size(); ++g) {
        const sample_mix::place p = m.at(epoch, g);
        CHECK(p.dataset == m.owner(g % 16));
        CHECK(p.epoch * sizes[p.dataset] + p.position == next[p.dataset]++);
      }
      for (std::size_t d = 0; d < 3; ++d) CHECK(next[d] - begin[d] == m.samples(d));
    }
  }
  CHECK(sample_mix(numbers{5, 2, 1}, sizes, 16, mix_until::forever, 75).size() == 75);
  const sample_mix endless(numbers{5, 2, 1}, sizes, 16, mix_until::forever);
  CHECK_THROWS_AS(endless.at(1, 0), usage_error);
  // Far on: the running number of a sample may have more than 64 bits.
  const sample_mix large(numbers{1, 1}, numbers{1ull << 40, 3}, 2, mix_until::last_end);
  CHECK(large.at(1ull << 30, 2 * 5) == sample_mix::place{0, 1ull << 30, 5});
}

TEST_CASE("what cannot be mixed is refused") {
  CHECK_THROWS_AS(sample_mix(numbers{}, numbers{}, 12), configuration_error);
  CHECK_THROWS_AS(sample_mix(numbers{1}, numbers{1, 2}, 12), configuration_error);
  CHECK_THROWS_AS(sample_mix(numbers{1, 0}, numbers{1, 2}, 12), configuration_error);
  CHECK_THROWS_AS(sample_mix(numbers{1, 1}, numbers{1, 0}, 12), configuration_error);
  CHECK_THROWS_AS(sample_mix(numbers{1, 1, 1}, numbers{1, 1, 1}, 2), configuration_error);
  CHECK_THROWS_AS(sample_mix(numbers{1, 1}, numbers{1, 1}, (1u << 24) + 1), configuration_error);
  CHECK_THROWS_AS(sample_mix(numbers{1ull << 39, 1ull << 39}, numbers{1, 1}, 12), configuration_error);
  CHECK_THROWS_AS(sample_mix(numbers{1}, numbers{(1ull << 48) + 1}, 12), configuration_error);
  CHECK_THROWS_AS(sample_mix(numbers{1}, numbers{1}, 12, mix_until::last_end, 5), configuration_error);
  CHECK_THROWS_AS(sample_mix(numbers{1, 1ull << 30}, numbers{1ull << 48, 1}, 1u << 20, mix_until::last_end),
                  configuration_error);
  CHECK(sample_mix(numbers{1, 1}, numbers{1ull << 48, 5}, 12, mix_until::first_end).size() < 100);
  CHECK(sample_mix(numbers{1, 1000000}, numbers{5, 5}, 2).tracks(0) == 1);
}
