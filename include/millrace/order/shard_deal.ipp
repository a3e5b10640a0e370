// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/order/permutation.hpp>
#include <millrace/order/shard_deal.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE shard_deal::shard_deal(std::span<const shard> shards, std::uint64_t seed, std::uint64_t epoch,
                                       std::uint64_t world) {
  if (world == 0) throw configuration_error("shards are dealt to at least one rank");
  if (shards.size() < world) {
    throw configuration_error("there are " + std::to_string(shards.size()) + " shards for " + std::to_string(world) +
                              " ranks: only an index can split them");
  }
  std::uint64_t known = 0;
  std::uint64_t total = 0;
  for (const shard& s : shards) {
    if (!s.size) continue;
    ++known;
    total += *s.size;
  }
  const std::uint64_t mean = known == 0 ? 1 : total / known;
  const permutation order(shards.size(), detail::key_of(seed, epoch, 4));
  std::vector<std::size_t> at(shards.size());  // the shard at each place of the epoch
  for (std::size_t i = 0; i < shards.size(); ++i) at[static_cast<std::size_t>(order(i))] = i;
  const auto size_at = [&](std::size_t place) { return shards[at[place]].size.value_or(mean); };
  std::vector<std::size_t> places(shards.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) { return size_at(a) > size_at(b); });
  of_rank_.resize(static_cast<std::size_t>(world));
  bytes_.resize(static_cast<std::size_t>(world), 0);
  using load = std::pair<std::uint64_t, std::size_t>;
  const auto heavier = [](const load& a, const load& b) { return b < a; };
  std::vector<load> lightest;  // a heap: the lightest rank in front
  for (std::size_t r = 0; r < bytes_.size(); ++r) lightest.emplace_back(0, r);
  for (const std::size_t place : places) {
    std::pop_heap(lightest.begin(), lightest.end(), heavier);
    load& chosen = lightest.back();
    of_rank_[chosen.second].push_back(place);
    chosen.first = bytes_[chosen.second] += size_at(place);
    std::push_heap(lightest.begin(), lightest.end(), heavier);
  }
  for (std::vector<std::size_t>& mine : of_rank_) {
    std::sort(mine.begin(), mine.end());
    for (std::size_t& place : mine) place = at[place];
  }
}

MILLRACE_INLINE double shard_deal::imbalance() const noexcept {
  const std::uint64_t total = std::accumulate(bytes_.begin(), bytes_.end(), std::uint64_t{0});
  if (total == 0) return 1;
  const std::uint64_t most = *std::max_element(bytes_.begin(), bytes_.end());
  return static_cast<double>(most) * static_cast<double>(bytes_.size()) / static_cast<double>(total);
}

MILLRACE_INLINE std::string shard_deal::text(std::span<const shard> shards, std::size_t names) const {
  std::string out;
  for (std::size_t r = 0; r < of_rank_.size(); ++r) {
    const std::vector<std::size_t>& mine = of_rank_[r];
    out += "rank " + std::to_string(r) + ": " + std::to_string(mine.size()) +
           (mine.size() == 1 ? " shard, " : " shards, ") + std::to_string(bytes_[r]) + " bytes";
    const std::size_t shown = std::min(names, mine.size());
    for (std::size_t i = 0; i < shown; ++i) out += (i == 0 ? ": " : ", ") + shards[mine[i]].shown();
    if (shown > 0 && shown < mine.size()) out += " and " + std::to_string(mine.size() - shown) + " more";
    out += '\n';
  }
  return out;
}

}  // namespace millrace::inline MILLRACE_ABI
