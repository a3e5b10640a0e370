// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <millrace/data/shard.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Which rank reads which shards of an epoch, if no index says how many samples they have: whole shards, about as
/// many bytes for every rank. A pure function of the list, the seed, the epoch and the world size, so that all ranks
/// know the whole plan from the same list.
///
/// The shards are put in the epoch's random order, and dealt from the largest to the smallest, each to the rank that
/// has the fewest bytes (R. Graham, "Bounds on multiprocessing timing anomalies", 1969: at most 4/3 of the best); of
/// equal shards the one that comes first in the epoch, of equal ranks the one with the lowest number. A rank reads its
/// shards in the epoch's order.
class shard_deal {
 public:
  /// A shard whose size is not known counts as the mean of the others. configuration_error for no ranks, or fewer
  /// shards than ranks: an index splits these.
  shard_deal(std::span<const shard> shards, std::uint64_t seed, std::uint64_t epoch, std::uint64_t world);

  std::size_t world() const noexcept { return of_rank_.size(); }
  /// The numbers, in the list, of a rank's shards, in the order in which it reads them.
  const std::vector<std::size_t>& of_rank(std::size_t rank) const noexcept { return of_rank_[rank]; }
  /// Bytes of a rank's shards.
  std::uint64_t bytes(std::size_t rank) const noexcept { return bytes_[rank]; }
  /// The most bytes of a rank divided by the mean; 1 is even.
  double imbalance() const noexcept;

  /// A line for each rank, with the names of its first `names` shards:
  /// "rank 0: 3 shards, 402653184 bytes: s3://b/7.tar, s3://b/2.tar and 1 more".
  std::string text(std::span<const shard> shards, std::size_t names = 3) const;

 private:
  std::vector<std::vector<std::size_t>> of_rank_;
  std::vector<std::uint64_t> bytes_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/order/shard_deal.ipp>
#endif
