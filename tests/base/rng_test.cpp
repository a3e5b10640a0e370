// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

using millrace::rng;

// The expected numbers come from a separate implementation of the published algorithms (SplitMix64 and xoshiro256**),
// itself checked against the authors' first number for SplitMix64 seed 1234567.
TEST_CASE("rng gives the published sequence") {
  struct expectation {
    std::uint64_t seed;
    std::array<std::uint64_t, 5> numbers;
  };
  const expectation table[] = {
      {0, {0x99ec5f36cb75f2b4, 0xbf6e1f784956452a, 0x1a5f849d4933e6e0, 0x6aa594f1262d2d2c, 0xbba5ad4a1f842e59}},
      {1, {0xb3f2af6d0fc710c5, 0x853b559647364cea, 0x92f89756082a4514, 0x642e1c7bc266a3a7, 0xb27a48e29a233673}},
      {42, {0x15780b2e0c2ec716, 0x6104d9866d113a7e, 0xae17533239e499a1, 0xecb8ad4703b360a1, 0xfde6dc7fe2ec5e64}},
      {~std::uint64_t(0),
       {0x8f5520d52a7ead08, 0xc476a018caa1802d, 0x81de31c0d260469e, 0xbf658d7e065f3c2f, 0x913593fda1bca32a}},
  };
  for (const expectation& e : table) {
    rng random(e.seed);
    for (std::uint64_t number : e.numbers) CHECK(random.next() == number);
  }
}

TEST_CASE("rng stays on the sequence far out") {
  rng random(123);
  for (int i = 1; i < 1000000; ++i) random.next();
  CHECK(random.next() == 0xff7b4cd5141aaf44);
}

TEST_CASE("rng mixes seed, epoch and purpose") {
  rng random(7, 3, 2);
  CHECK(random.next() == 0x5dee543b53e2c0a7);
  CHECK(random.next() == 0xa0ffc8699e9bb8ac);
  CHECK(random.next() == 0x268cd4a70da9e37a);

  std::vector<std::uint64_t> firsts;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
      for (std::uint64_t purpose = 0; purpose < 8; ++purpose) firsts.push_back(rng(seed, epoch, purpose).next());
    }
  }
  std::sort(firsts.begin(), firsts.end());
  CHECK(std::adjacent_find(firsts.begin(), firsts.end()) == firsts.end());
}

TEST_CASE("rng::below is the documented reduction") {
  const std::uint64_t huge = (std::uint64_t(1) << 63) + 1;  // rejects every other number
  const std::uint64_t bounds[] = {1, 2, 3, 10, 100, 1000, huge, huge, huge, huge, ~std::uint64_t(0)};
  const std::uint64_t expected[] = {0,
                                    0,
                                    2,
                                    9,
                                    99,
                                    769,
                                    6633989454467100377u,
                                    7022439175346172479u,
                                    2681029139591840946u,
                                    7388145106668446555u,
                                    5928998142081247041u};
  rng random(42);
  for (std::size_t i = 0; i < std::size(bounds); ++i) CHECK(random.below(bounds[i]) == expected[i]);
}

TEST_CASE("rng::below is uniform") {
  rng random(5);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts[random.below(7)];
  for (int count : counts) {
    CHECK(count > 9600);
    CHECK(count < 10400);
  }
}

TEST_CASE("rng::uniform has 53 bits in [0, 1)") {
  rng random(42);
  CHECK(random.uniform() == 0.08386297105988216);
  CHECK(random.uniform() == 0.3789802506626686);
  CHECK(random.uniform() == 0.6800434110281394);
}

TEST_CASE("permute is the documented permutation") {
  std::vector<int> items(10);
  std::iota(items.begin(), items.end(), 0);
  rng random(7);
  millrace::permute(items, random);
  CHECK(items == std::vector<int>{1, 8, 3, 0, 4, 5, 9, 6, 2, 7});

  std::vector<std::uint64_t> many(1000);
  std::iota(many.begin(), many.end(), std::uint64_t(0));
  rng again(7);
  millrace::permute(many, again);
  std::uint64_t hash = 0;
  for (std::uint64_t item : many) hash = hash * 1000003 + item;
  CHECK(hash == 0x8a3659f49530967c);
  std::sort(many.begin(), many.end());
  for (std::size_t i = 0; i < many.size(); ++i) REQUIRE(many[i] == i);
}

TEST_CASE("permute of nothing and of one item draws nothing") {
  rng random(1);
  std::string empty;
  std::string one = "x";
  millrace::permute(empty, random);
  millrace::permute(one, random);
  CHECK(one == "x");
  CHECK(random.next() == rng(1).next());
}
