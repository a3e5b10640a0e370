// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/order/sample_order.hpp>

namespace millrace::inline MILLRACE_ABI {

/// How well an order mixes the shards, as numbers that a full shuffle of all samples has at 1 (displacement: 1/3). They
/// are measured on some of the order's steps, always the same ones.
class shuffle_quality {
 public:
  /// Distances of the samples between their places in the shards and in the order: the mean, divided by the number of
  /// samples.
  double displacement = 0;
  /// How many others of the same shard a sample has in its step, all ranks together, divided by the number in a full
  /// shuffle.
  double mates_of_step = 0;
  /// Likewise in the batch of one rank.
  double mates_of_batch = 0;
  /// The shards of the first step, a sign for each group of neighbours: " .:-=+*#%@" from none to the most.
  std::string picture;

  /// `batch` samples on each of `world` ranks, neither 0. At most some 200,000 samples are looked at.
  static shuffle_quality of(const sample_order& order, std::uint64_t batch, std::uint64_t world);
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/order/shuffle_quality.ipp>
#endif
