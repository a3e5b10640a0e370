// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/feed/shard_deal.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/shuffle_shards.hpp>

namespace millrace {

/// See epochs() of a list of shards.
struct shard_epochs_options {
  std::uint64_t seed = 0;
  std::uint64_t epochs = 1;       ///< how many, from first_epoch on
  std::uint64_t first_epoch = 0;  ///< its number
  millrace::rank rank = {};       ///< which of how many
};

/// The head of a training whose shards have no index: this rank's shards, epoch after epoch.
///
///     auto training = mill::epochs(s3.list("s3://corpus/train/"), {.seed = 7, .epochs = 90, .rank = mine})
///                     | mill::fetch(s3) | mill::untar() | mill::group_samples()
///                     | mill::shuffle({.window = 4096}) | mill::batch(256);
///
/// The list is read once, and put in the order of the URLs' bytes. In every epoch its shards are permuted and dealt to
/// the ranks by their bytes (shard_deal): a pure function of seed, epoch and list, which must be the same on all ranks.
/// Each shard, and so each sample, says seed and epoch: a shuffle's window and a batch keep to one epoch, and need to
/// be told neither. fetch() goes on with the next epoch's shards while this one's last ones are taken.
///
/// What only an index gives: equally many batches on every rank, a known number of them, and a state behind every
/// batch. A training goes on at an epoch's beginning, by .first_epoch.
///
/// Bound: the list. Errors: those of the list; configuration_error for an empty list, for fewer shards than ranks, and,
/// here, for options that contradict each other.
stream<shard> epochs(stream<shard> list, const shard_epochs_options& options);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

template <class Shard>
async_generator<Shard> deal_shards(async_generator<Shard> list, shard_epochs_options options) {
  std::vector<Shard> all;
  while (std::optional<Shard> s = co_await list.next()) all.push_back(std::move(*s));
  list = async_generator<Shard>();
  if (all.empty()) throw configuration_error("epochs: the list has no shards");
  std::sort(all.begin(), all.end(), [](const Shard& a, const Shard& b) { return a.url < b.url; });
  for (std::uint64_t n = 0; n < options.epochs; ++n) {
    const std::uint64_t epoch = options.first_epoch + n;
    const shard_deal deal(all, options.seed, epoch, options.rank.world_size);
    const std::vector<std::size_t>& mine = deal.of_rank(options.rank.index);
    if (n == 0) say_rank(options.rank, mine.size(), all.size());
    for (const std::size_t i : mine) {
      Shard s = all[i];
      s.seed = options.seed;
      s.epoch = epoch;
      s.dealt = true;
      co_yield give(s);
    }
  }
}

}  // namespace detail

inline stream<shard> epochs(stream<shard> list, const shard_epochs_options& options) {
  options.rank.check();
  if (options.epochs > UINT64_MAX - options.first_epoch) throw configuration_error("epochs: too many .epochs");
  return stream<shard>(detail::deal_shards<shard>(std::move(list).generator(), options))
      .named("epochs")
      .of_rank(options.rank.index);
}

}  // namespace millrace
