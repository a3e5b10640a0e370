// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/order/shard_deal.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/train/equal_batches.hpp>

namespace millrace::inline MILLRACE_ABI {

/// See shard_epochs().
struct shard_epochs_options {
  std::uint64_t seed = 0;
  std::uint64_t epochs = 1;       ///< how many, from first_epoch on
  std::uint64_t first_epoch = 0;  ///< its number
  millrace::rank rank = {};       ///< which of how many
  /// Gives several ranks equally many batches; copied. Null: see .uneven.
  const equal_batches* equal = nullptr;
  /// Several ranks, and each takes as many batches as its shards hold: for work in which no rank waits for the others.
  bool uneven = false;
};

/// Source: this rank's shards, epoch after epoch, for a training that reads them by stages of its own: compressed
/// archives, lines, recordings, a format of the program's. For samples in plain tars write epochs() of a dataset, which
/// has a state.
///
///     auto training = mill::shard_epochs(s3.list("s3://corpus/train/"), {.seed = 7, .epochs = 90, .rank = mine})
///                     | mill::fetch(s3) | mill::untar() | mill::group_samples()
///                     | mill::shuffle({.window = 4096}) | mill::batch(256);
///
/// The list is read once, and put in the order of the URLs' bytes. In every epoch its shards are permuted and dealt to
/// the ranks by their bytes (shard_deal): a pure function of seed, epoch and list, which must be the same on all ranks.
/// Each shard, and so each sample, has seed and epoch: a shuffle window and a batch keep to one epoch, and need no
/// options for that. fetch() continues with the next epoch's shards while the last ones of this one are taken.
///
/// The ranks' shards do not hold equally many samples. A training that waits for all ranks in every step would hang at
/// the first end, so several ranks need .equal (equal_batches), or .uneven where they do not wait.
///
/// Only an index gives a known number of batches. There is no state: a training can be resumed at an epoch's beginning,
/// by .first_epoch.
///
/// Bound: the list. Errors: those of the list; configuration_error for an empty list, for fewer shards than ranks, and,
/// here, for options that contradict each other, and several ranks with neither .equal nor .uneven.
MILLRACE_COROUTINE stream<shard> shard_epochs(stream<shard> list, const shard_epochs_options& options);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

template <class Shard>
async_generator<Shard> deal_shards(async_generator<Shard> list, shard_epochs_options options,
                                   std::shared_ptr<equal_state> equal) {
  std::vector<Shard> all;
  while (std::optional<Shard> s = co_await list.next()) all.push_back(std::move(*s));
  list = async_generator<Shard>();
  if (all.empty()) throw configuration_error("shard_epochs: the list has no shards");
  std::sort(all.begin(), all.end(), [](const Shard& a, const Shard& b) { return a.url < b.url; });
  if (equal != nullptr) {
    hasher128 digest;
    for (const Shard& s : all) {
      digest.add(unsigned_url(s.url));
      digest.add(s.size.value_or(UINT64_MAX));
    }
    equal->list = digest.value();
  }
  for (std::uint64_t n = 0; n < options.epochs; ++n) {
    const std::uint64_t epoch = options.first_epoch + n;
    const shard_deal deal(all, options.seed, epoch, options.rank.world_size);
    const std::vector<std::size_t>& mine = deal.of_rank(options.rank.index);
    if (n == 0) log_rank(options.rank, mine.size(), all.size());
    for (const std::size_t i : mine) {
      if (equal != nullptr && equal->over.load(std::memory_order_acquire) > epoch) break;  // the rest is not needed
      Shard s = all[i];
      s.seed = options.seed;
      s.epoch = epoch;
      s.dealt = true;
      co_yield give(s);
    }
  }
}

}  // namespace detail

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/shard_epochs.ipp>
#endif
