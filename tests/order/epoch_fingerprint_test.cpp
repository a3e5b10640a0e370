// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/order/epoch_fingerprint.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/order/sample_order.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

const std::vector<std::uint64_t> counts{50, 0, 7, 120, 33};

}  // namespace

TEST_CASE("the fingerprints of ranks, and of the halves of a resume, add up to the epoch's") {
  const auto shards = std::make_shared<const shard_counts>(counts);
  const sample_order o(shards, 7, 5, {.tracks = 12, .slice = 8});
  epoch_fingerprint together;
  std::uint64_t at = 0;
  for (const std::uint64_t world : {2u, 3u}) {  // five steps on two ranks, the rest on three
    std::vector<epoch_fingerprint> ranks(static_cast<std::size_t>(world));
    for (int steps = 0; at < o.size() && (world == 3 || steps < 5); ++steps) {
      const order_step step = step_at(o.size(), at, 8, world);
      for (std::uint64_t r = 0; r < world; ++r) {
        for (const std::uint64_t g : rank_share(12, r, world).positions(step)) {
          ranks[static_cast<std::size_t>(r)].add(o.at(g), 5);
        }
      }
      at += step.count;
    }
    for (const epoch_fingerprint& f : ranks) together += f;
  }
  CHECK(together == epoch_fingerprint::of(*shards, 5));
  CHECK(verify_epoch(*shards, 5, together).empty());
  CHECK(epoch_fingerprint::parse(together.text()) == together);
  CHECK_FALSE(verify_epoch(*shards, 4, together).empty());
}

TEST_CASE("a sample that is missing or came twice is named") {
  const shard_counts shards(counts);
  epoch_fingerprint one;
  one.add({3, 77}, 0);
  epoch_fingerprint less = epoch_fingerprint::of(shards, 0);
  less -= one;
  CHECK(verify_epoch(shards, 0, less) ==
        "1 sample fewer than the 210 of epoch 0 were delivered: sample 77 of shard 3 is missing");
  epoch_fingerprint more = epoch_fingerprint::of(shards, 0);
  more += one;
  CHECK(verify_epoch(shards, 0, more) ==
        "1 sample more than the 210 of epoch 0 were delivered: sample 77 of shard 3 came twice");
  epoch_fingerprint two = more;
  two += one;
  CHECK(verify_epoch(shards, 0, two) == "2 samples more than the 210 of epoch 0 were delivered");
  epoch_fingerprint other;
  other.add({0, 1}, 0);
  epoch_fingerprint swapped = less;
  swapped += other;
  CHECK(verify_epoch(shards, 0, swapped) ==
        "as many samples as epoch 0 has (210) were delivered, but not each of them once");
  epoch_fingerprint odd = less;
  odd -= one;
  odd += other;
  CHECK(verify_epoch(shards, 0, odd) ==
        "1 sample fewer than the 210 of epoch 0 were delivered, and others are not each there once");
}

TEST_CASE("a fingerprint tells shard, ordinal and epoch apart, and forgets the order") {
  const auto of = [](sample_place p, std::uint64_t epoch) {
    epoch_fingerprint f;
    f.add(p, epoch);
    return f;
  };
  CHECK(of({1, 2}, 3) == of({1, 2}, 3));
  CHECK(of({1, 2}, 3) != of({2, 1}, 3));
  CHECK(of({1, 2}, 3) != of({3, 2}, 1));
  CHECK(of({1, 2}, 3) != of({1, 3}, 2));
  epoch_fingerprint a = of({1, 2}, 3);
  a += of({4, 5}, 6);
  epoch_fingerprint b = of({4, 5}, 6);
  b += of({1, 2}, 3);
  CHECK(a == b);
  a -= of({4, 5}, 6);
  CHECK(a == of({1, 2}, 3));
  // Written into files: part of the contract.
  CHECK(of({1, 2}, 3).text() == "1:6a755f3a91e5c5c2a6746ed4b19db144");
}

TEST_CASE("what is no fingerprint is not read as one") {
  const std::string text = epoch_fingerprint::of(shard_counts(counts), 1).text();
  CHECK(epoch_fingerprint::parse(text).has_value());
  for (std::size_t n = 0; n < text.size(); ++n) CHECK_FALSE(epoch_fingerprint::parse(text.substr(0, n)).has_value());
  CHECK_FALSE(epoch_fingerprint::parse(text + "0").has_value());
  CHECK_FALSE(epoch_fingerprint::parse(" " + text).has_value());
  CHECK_FALSE(epoch_fingerprint::parse("99999999999999999999:" + text.substr(text.find(':') + 1)).has_value());
}
