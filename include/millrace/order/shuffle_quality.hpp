// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <millrace/order/rank_share.hpp>
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

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

/// Adds up, over batches, the pairs of samples that are of one shard.
class mates_counter {
 public:
  void add(std::vector<std::uint64_t>& shards) {
    std::sort(shards.begin(), shards.end());
    possible_ += static_cast<double>(shards.size()) * static_cast<double>(shards.size() - 1);
    for (std::size_t i = 0; i < shards.size();) {
      const std::size_t begin = i;
      while (i < shards.size() && shards[i] == shards[begin]) ++i;
      pairs_ += static_cast<double>(i - begin) * static_cast<double>(i - begin - 1);
    }
    shards.clear();
  }
  /// Against a chance of `full` for two samples to be of one shard; 0 when there were no pairs to look at.
  double against(double full) const noexcept { return possible_ * full > 0 ? pairs_ / (possible_ * full) : 0; }

 private:
  double pairs_ = 0;
  double possible_ = 0;
};

inline std::string picture_of(const std::vector<std::uint64_t>& shards, std::size_t count) {
  static constexpr char signs[] = " .:-=+*#%@";
  const std::size_t width = std::min<std::size_t>(count, 64);
  std::vector<std::uint64_t> boxes(width, 0);
  for (const std::uint64_t s : shards) ++boxes[static_cast<std::size_t>(s * width / count)];
  const std::uint64_t most = width == 0 ? 0 : *std::max_element(boxes.begin(), boxes.end());
  std::string out;
  for (const std::uint64_t n : boxes) out += signs[most == 0 ? 0 : (n * 9 + most - 1) / most];
  return out;
}

}  // namespace detail

inline shuffle_quality shuffle_quality::of(const sample_order& order, std::uint64_t batch, std::uint64_t world) {
  shuffle_quality out;
  const std::uint64_t samples = order.size();
  const shard_counts& counts = order.counts();
  const auto n = static_cast<double>(samples);
  if (samples < 2) return out;
  double full = 0;  // the chance of two samples to be of one shard
  for (std::size_t s = 0; s < counts.shards(); ++s) {
    const auto size = static_cast<double>(counts.count(s));
    full += size * (size - 1) / n / (n - 1);
  }
  constexpr std::uint64_t looked_at = 100000;
  const std::uint64_t stride = samples <= looked_at ? 1 : samples / looked_at;
  std::uint64_t places = 0;
  for (std::uint64_t g = 0; g < samples; g += stride, ++places) {
    const sample_place p = order.at(g);
    const std::uint64_t x = counts.begin(static_cast<std::size_t>(p.shard)) + p.ordinal;
    out.displacement += static_cast<double>(x > g ? x - g : g - x);
  }
  out.displacement /= static_cast<double>(places) * n;

  const std::uint64_t steps = steps_from(samples, 0, batch, world);
  const std::uint64_t a_step = step_at(samples, 0, batch, world).count;
  const std::uint64_t some = std::clamp<std::uint64_t>(looked_at / a_step, 1, steps);
  detail::mates_counter of_step;
  detail::mates_counter of_batch;
  std::vector<std::uint64_t> shards;
  std::vector<std::uint64_t> mine;
  const rank_share share(order.tracks(), 0, world, order.hosts());
  for (std::uint64_t i = 0; i < some; ++i) {
    const order_step step = step_at(samples, i * steps / some * a_step, batch, world);
    for (std::uint64_t g = step.begin; g < step.begin + step.count; ++g) shards.push_back(order.at(g).shard);
    if (i == 0) out.picture = detail::picture_of(shards, counts.shards());
    of_step.add(shards);
  }
  const std::uint64_t some_batches = std::clamp<std::uint64_t>(looked_at / batch, 1, steps);
  for (std::uint64_t i = 0; i < some_batches; ++i) {
    share.positions(step_at(samples, i * steps / some_batches * a_step, batch, world), mine);
    for (const std::uint64_t g : mine) shards.push_back(order.at(g).shard);
    if (!shards.empty()) of_batch.add(shards);
  }
  out.mates_of_step = of_step.against(full);
  out.mates_of_batch = of_batch.against(full);
  return out;
}

}  // namespace millrace
