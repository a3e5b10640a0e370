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

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/order/permutation.hpp>

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

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline shard_deal::shard_deal(std::span<const shard> shards, std::uint64_t seed, std::uint64_t epoch,
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

inline double shard_deal::imbalance() const noexcept {
  const std::uint64_t total = std::accumulate(bytes_.begin(), bytes_.end(), std::uint64_t{0});
  if (total == 0) return 1;
  const std::uint64_t most = *std::max_element(bytes_.begin(), bytes_.end());
  return static_cast<double>(most) * static_cast<double>(bytes_.size()) / static_cast<double>(total);
}

inline std::string shard_deal::text(std::span<const shard> shards, std::size_t names) const {
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

}  // namespace millrace
