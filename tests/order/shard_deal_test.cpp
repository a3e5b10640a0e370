// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/order/shard_deal.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

std::vector<shard> shards_of(const std::vector<std::uint64_t>& sizes) {
  std::vector<shard> all;
  for (std::size_t i = 0; i < sizes.size(); ++i) all.emplace_back("s3://b/" + std::to_string(i) + ".tar", sizes[i]);
  return all;
}

/// The sizes of a rank's shards.
std::vector<std::uint64_t> sizes_of(const shard_deal& deal, std::size_t rank, const std::vector<shard>& shards) {
  std::vector<std::uint64_t> sizes;
  for (const std::size_t i : deal.of_rank(rank)) sizes.push_back(*shards[i].size);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

}  // namespace

TEST_CASE("every shard is dealt to one rank, and the bytes are even") {
  rng random(1);
  std::vector<std::uint64_t> sizes;
  for (int i = 0; i < 1281; ++i) sizes.push_back(90000000 + random.below(20000000));
  const std::vector<shard> all = shards_of(sizes);
  for (const std::uint64_t world : {1u, 2u, 7u, 64u}) {
    const shard_deal deal(all, 7, 3, world);
    REQUIRE(deal.world() == world);
    std::vector<int> dealt(all.size(), 0);
    for (std::size_t r = 0; r < world; ++r) {
      std::uint64_t bytes = 0;
      for (const std::size_t i : deal.of_rank(r)) {
        ++dealt.at(i);
        bytes += sizes[i];
      }
      CHECK(bytes == deal.bytes(r));
    }
    CHECK(std::all_of(dealt.begin(), dealt.end(), [](int n) { return n == 1; }));
    CHECK(deal.imbalance() < 1.05);  // 1,281 shards do not divide by 64
  }
}

TEST_CASE("the largest shards go first, each to the lightest rank") {
  const std::vector<shard> all = shards_of({3, 5, 9, 4, 7, 2});
  const shard_deal deal(all, 1, 1, 2);
  // 9 | 7, 9 | 7+5, 9+4 | 12, 13 | 12+3, 13+2 | 15
  CHECK(sizes_of(deal, 0, all) == std::vector<std::uint64_t>{2, 4, 9});
  CHECK(sizes_of(deal, 1, all) == std::vector<std::uint64_t>{3, 5, 7});
  CHECK(deal.imbalance() == 1.0);
}

TEST_CASE("each epoch deals and orders the shards anew, alike on every rank") {
  const std::vector<shard> all = shards_of(std::vector<std::uint64_t>(40, 1000));
  const shard_deal deal(all, 7, 3, 4);
  for (std::size_t r = 0; r < 4; ++r) {
    CHECK(deal.of_rank(r).size() == 10);
    CHECK(shard_deal(all, 7, 3, 4).of_rank(r) == deal.of_rank(r));
    CHECK(shard_deal(all, 7, 4, 4).of_rank(r) != deal.of_rank(r));
    CHECK(shard_deal(all, 8, 3, 4).of_rank(r) != deal.of_rank(r));
    CHECK_FALSE(std::is_sorted(deal.of_rank(r).begin(), deal.of_rank(r).end()));
  }
  // Part of the contract: the epoch's order, whatever the sizes.
  CHECK(shard_deal(shards_of({3, 5, 9, 4, 7, 2}), 7, 3, 1).of_rank(0) == std::vector<std::size_t>{5, 0, 3, 4, 1, 2});
}

TEST_CASE("a shard whose size is not known counts as the mean of the others") {
  std::vector<shard> all = shards_of({10, 20, 30});
  all.emplace_back("s3://b/x.tar");
  const shard_deal deal(all, 1, 1, 2);
  CHECK(deal.bytes(0) + deal.bytes(1) == 80);
  CHECK(deal.bytes(0) == 40);
  const std::vector<shard> none(3, shard("s3://b/x.tar"));
  CHECK(shard_deal(none, 1, 1, 3).of_rank(2).size() == 1);
}

TEST_CASE("the plan is said rank by rank") {
  const std::vector<shard> all = shards_of({3, 5, 9, 4, 7, 2});
  const std::string text = shard_deal(all, 1, 1, 3).text(all, 1);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  CHECK_THAT(text, Catch::Matchers::StartsWith("rank 0: 2 shards, "));
  CHECK_THAT(text, Catch::Matchers::Contains("bytes: s3://b/"));
  CHECK_THAT(text, Catch::Matchers::Contains(".tar and 1 more\n"));
}

TEST_CASE("fewer shards than ranks are refused, as are no ranks") {
  const std::vector<shard> all = shards_of({1, 2});
  CHECK_THROWS_WITH(shard_deal(all, 1, 1, 3), Catch::Matchers::Contains("2 shards for 3 ranks"));
  CHECK_THROWS_AS(shard_deal(all, 1, 1, 0), configuration_error);
}
