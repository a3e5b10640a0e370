// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/order/shard_counts.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE shard_counts::shard_counts(std::span<const std::uint64_t> counts,
                                           const std::vector<std::uint64_t>& groups) {
  if (counts.size() >= UINT32_MAX) throw configuration_error("a dataset has fewer than 2^32 shards");
  begins_.reserve(counts.size() + 1);
  begins_.push_back(0);
  for (const std::uint64_t n : counts) {
    if (n > permutation::most - begins_.back()) throw configuration_error("a dataset has at most 2^48 samples");
    begins_.push_back(begins_.back() + n);
  }
  if (!groups.empty()) {
    groups_.reserve(groups.size() + 1);
    groups_.push_back(0);
    for (const std::uint64_t n : groups) groups_.push_back(groups_.back() + n);
    if (groups_.back() != samples()) detail::misused("shard_counts: groups and shards have not equally many samples");
  }
  if (samples() == 0) return;
  while ((samples() >> guide_bits_) > 2 * begins_.size()) ++guide_bits_;
  guide_.reserve(static_cast<std::size_t>(samples() >> guide_bits_) + 1);
  std::uint32_t shard = 0;
  for (std::uint64_t x = 0; x <= (samples() - 1) >> guide_bits_; ++x) {
    while (begins_[shard + 1] <= x << guide_bits_) ++shard;
    guide_.push_back(shard);
  }
}

}  // namespace millrace::inline MILLRACE_ABI
