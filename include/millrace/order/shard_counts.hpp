// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/order/permutation.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A sample by number: that of its shard, and its own in the shard, both from 0.
struct sample_place {
  std::uint64_t shard = 0;
  std::uint64_t ordinal = 0;
  std::uint32_t copy = 0;  ///< origin::copy, if it may come several times an epoch

  friend bool operator==(const sample_place&, const sample_place&) = default;
};

/// How many samples each shard of a dataset has, laid end to end: sample number x of the dataset is in some shard. The
/// shards' numbers are their indexes in the list that it is made from, which every rank must have in the same order
/// (that of the bytes of their keys). At most 16 bytes a shard.
class shard_counts {
 public:
  /// One count for each shard; 0 is allowed. configuration_error for more than 2^48 samples or 2^32 shards.
  explicit shard_counts(std::span<const std::uint64_t> counts) : shard_counts(counts, {}) {}
  /// Samples that are read by groups: `groups` has the lengths of all of them, end to end. None is empty, and together
  /// they are as long as the shards; 8 bytes each.
  shard_counts(std::span<const std::uint64_t> counts, const std::vector<std::uint64_t>& groups);

  std::size_t shards() const noexcept { return begins_.size() - 1; }
  std::uint64_t samples() const noexcept { return begins_.back(); }
  /// Samples in one shard; its number must be below shards().
  std::uint64_t count(std::size_t shard) const noexcept { return begins_[shard + 1] - begins_[shard]; }
  /// The number, in the dataset, of the shard's first sample. For shards() it is samples().
  std::uint64_t begin(std::size_t shard) const noexcept { return begins_[shard]; }

  /// The numbers at which the groups begin, and at which the last one ends; empty if there are none.
  const std::vector<std::uint64_t>& groups() const noexcept { return groups_; }

  /// The place of sample number `x` of the dataset; `x` must be below samples(). A look into a table and a step or two.
  sample_place find(std::uint64_t x) const noexcept { return find(x, guide_[x >> guide_bits_]); }
  /// Like the above, searching from a shard that is not after it: best that of the sample before.
  sample_place find(std::uint64_t x, std::uint64_t first) const noexcept {
    while (begins_[first + 1] <= x) ++first;
    return {first, x - begins_[first], 0};
  }

 private:
  std::vector<std::uint64_t> begins_;
  std::vector<std::uint64_t> groups_;
  std::vector<std::uint32_t> guide_;  // the shard of every 2^guide_bits_-th sample
  int guide_bits_ = 0;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/order/shard_counts.ipp>
#endif
