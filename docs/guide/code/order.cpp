// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/order.md.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/collect.hpp>
#include <millrace/flow/iota.hpp>
#include <millrace/flow/mix.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/take.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/shuffle_shards.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace {

// begin epoch
mill::stream<mill::shard> shards_of(std::uint64_t epoch, mill::rank r) {
  return mill::shards("s3://corpus/train-{000..099}.tar")     // the same list in every process,
         | mill::shuffle_shards({.seed = 7, .epoch = epoch})  // in the same order,
         | mill::split_by_rank(r);                            // of which each takes its share
}
// end epoch

std::vector<std::string> names(mill::stream<mill::shard> shards) {
  mill::testing::virtual_loop loop;
  std::vector<std::string> all;
  for (const mill::shard& s : block_on(loop, collect(std::move(shards)))) all.push_back(s.url);
  return all;
}

std::vector<std::int64_t> numbers(mill::stream<std::int64_t> source) {
  mill::testing::virtual_loop loop;
  return block_on(loop, collect(std::move(source)));
}

}  // namespace

TEST_CASE("the guide's epochs differ, and repeat", "[guide]") {
  const std::vector<std::string> first = names(shards_of(0, mill::rank()));
  CHECK(first == names(shards_of(0, mill::rank())));
  CHECK(first != names(shards_of(1, mill::rank())));
  std::vector<std::string> all;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::vector<std::string> mine = names(shards_of(0, mill::rank{.index = i, .world_size = 4}));
    CHECK(mine.size() == 25);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  CHECK(std::unique(all.begin(), all.end()) - all.begin() == 100);
}

TEST_CASE("the guide's window holds what it says", "[guide]") {
  auto samples = mill::iota(std::int64_t(10000));
  const std::uint64_t epoch = 3;
  // begin window
  auto shuffled =
      std::move(samples) | mill::shuffle({.window = 4096, .bytes = 1 * mill::GiB, .seed = 7, .epoch = epoch});
  // end window
  std::vector<std::int64_t> got = numbers(std::move(shuffled));
  CHECK(!std::is_sorted(got.begin(), got.end()));
  std::sort(got.begin(), got.end());
  CHECK(got == numbers(mill::iota(std::int64_t(10000))));
}

TEST_CASE("the guide's mix takes three of four from the first source", "[guide]") {
  auto web = mill::iota(std::int64_t(100000));
  auto books = mill::iota(std::int64_t(100000));
  const std::uint64_t epoch = 0;
  // begin mix
  std::vector<mill::stream<std::int64_t>> sources;
  sources.push_back(std::move(web));
  sources.push_back(std::move(books));
  auto both = mill::mix(std::move(sources), {3, 1}, {.seed = 7, .epoch = epoch, .end = mill::mix_end::first}) |
              mill::take(10000);
  // end mix
  CHECK(numbers(std::move(both)).size() == 10000);
}
