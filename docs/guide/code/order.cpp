// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/order.md.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/feed/index_builder.hpp>
#include <millrace/feed/index_set.hpp>
#include <millrace/feed/rank_share.hpp>
#include <millrace/feed/sample_order.hpp>
#include <millrace/flow/collect.hpp>
#include <millrace/flow/iota.hpp>
#include <millrace/flow/mix.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/take.hpp>
#include <millrace/shards/sample.hpp>
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

// begin random
bool flipped(const mill::sample& s) {
  constexpr std::uint64_t flip = 1;  // one number for each purpose
  return s.random(flip).uniform() < 0.5;
}
// end random

// begin index
std::vector<mill::sample_place> samples_of(const mill::index_set& set, std::uint64_t epoch, mill::rank r) {
  const mill::sample_order order(set.counts(), 7, epoch, {.slice = set.slice()});
  const mill::rank_share share(order.tracks(), r.index, r.world_size);
  std::vector<mill::sample_place> mine;
  for (std::uint64_t position = 0; position < order.size();) {  // or where the training before stopped
    const mill::order_step step = mill::step_at(order.size(), position, 32, r.world_size);
    for (const std::uint64_t g : share.positions(step)) mine.push_back(order.at(g));  // 32, in the last step fewer
    position += step.count;
  }
  return mine;
}
// end index

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

TEST_CASE("the guide's samples are all read, each by one of the ranks", "[guide]") {
  std::vector<mill::shard_index> indexes;
  for (int shard = 0; shard < 3; ++shard) {
    mill::index_builder builder(std::to_string(shard), "x.tar", mill::index_builder::checksums::none);
    for (std::uint64_t i = 0; i < 100; ++i) {
      mill::tar::entry e;
      e.name = std::to_string(i) + ".jpg";
      e.header_offset = i * 1024;
      e.data_offset = e.header_offset + 512;
      builder.add(e);
    }
    indexes.push_back(builder.finish(100 * 1024 + 1024, std::string()));
  }
  const mill::index_set set(std::move(indexes));
  std::vector<int> read(300, 0);
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto mine = samples_of(set, 1, mill::rank{.index = i, .world_size = 4});
    CHECK(mine.size() == 75);
    for (const mill::sample_place& p : mine) ++read.at(p.shard * 100 + p.ordinal);
  }
  CHECK(std::count(read.begin(), read.end(), 1) == 300);
}

TEST_CASE("the guide's samples are flipped alike every time, and about half of them", "[guide]") {
  const auto from = std::make_shared<const mill::shard>("s3://corpus/train-000.tar");
  int all = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const mill::sample s("key", mill::origin(from, 0, i));
    CHECK(flipped(s) == flipped(s));
    all += flipped(s) ? 1 : 0;
  }
  CHECK(all > 430);
  CHECK(all < 570);
}
