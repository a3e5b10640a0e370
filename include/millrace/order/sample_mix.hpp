// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The end of an epoch of a mix of datasets. A dataset that has ended before begins anew, in another order: its next
/// round.
enum class mix_until : unsigned char {
  first_end,  ///< when a dataset would have to begin its second round: that one comes whole, the others in part
  last_end,   ///< after the last sample of the dataset whose first round takes longest: every sample is delivered
  forever,    ///< at a length that is given, whatever has ended before; without one, nowhere
};

/// The canonical order of several datasets with weights, which hold exactly over any `tracks` positions in a row: every
/// track belongs to one of them. At a position stands a position of a dataset's own order, in an epoch of its own. A
/// pure function of weights, tracks and sizes; the ranks share the positions by rank_share as they do those of one
/// dataset, and a track stays with its rank.
///
/// Every epoch has the same number of positions, and of samples of each dataset, whose rounds run on from one epoch to
/// the next: so every sample comes once in each of its dataset's rounds, however long the epochs are.
///
/// The weights become numbers of tracks by the largest remainder (ties: the first), at least one each, so they are
/// exact to 1 / tracks. The tracks are dealt so that each dataset is even in time and in every class of tracks modulo a
/// divisor of `tracks`, so among the ranks. Whole numbers throughout: every platform deals alike.
class sample_mix {
 public:
  /// `weights`: one for each dataset, in any unit, none 0, their sum below 2^40. `sizes`: the samples of each dataset,
  /// none 0. `length`: positions of an epoch that goes on `forever`; 0: it has no end. configuration_error otherwise,
  /// for more datasets than tracks, and for epochs of more than 2^60 positions.
  sample_mix(std::span<const std::uint64_t> weights, std::span<const std::uint64_t> sizes, std::uint64_t tracks,
             mix_until until = mix_until::first_end, std::uint64_t length = 0);

  std::size_t datasets() const noexcept { return sizes_.size(); }
  /// Tracks of one dataset: those of its own sample_order.
  std::uint64_t tracks(std::size_t dataset) const noexcept { return starts_[dataset + 1] - starts_[dataset]; }
  /// The dataset that track `t` belongs to; below the number of tracks.
  std::size_t owner(std::uint64_t t) const noexcept { return owners_[static_cast<std::size_t>(t)]; }
  /// Positions of an epoch; UINT64_MAX when it never ends.
  std::uint64_t size() const noexcept { return size_; }
  /// How many of them are one dataset's. Means nothing when it never ends.
  std::uint64_t samples(std::size_t dataset) const noexcept { return before(dataset, size_); }

  /// The sample at a position.
  struct place {
    std::size_t dataset = 0;
    std::uint64_t epoch = 0;     ///< its round: counted from 0 where the mix began
    std::uint64_t position = 0;  ///< in the dataset's order of that round

    friend bool operator==(const place&, const place&) = default;
  };
  /// In the mix's first epoch, or in a later one; a usage_error beyond size().
  place at(std::uint64_t position) const { return at(0, position); }
  place at(std::uint64_t epoch, std::uint64_t position) const;
  /// The position in the first epoch of sample number `n` (from 0, its rounds in a row) of a dataset: the inverse of
  /// at().
  std::uint64_t find(std::size_t dataset, std::uint64_t n) const noexcept;

 private:
  __extension__ typedef unsigned __int128 wide;  // nvcc takes no `using` here
  std::uint64_t before(std::size_t dataset, std::uint64_t position) const noexcept;
  static std::vector<std::uint64_t> quotas(std::span<const std::uint64_t> weights, std::uint64_t tracks);
  void deal(std::vector<std::uint64_t> quota, std::uint64_t tracks);

  std::vector<std::uint32_t> owners_;   // of each track
  std::vector<std::uint32_t> numbers_;  // of each track among its owner's
  std::vector<std::uint32_t> slots_;    // the tracks of each dataset, dataset by dataset
  std::vector<std::uint64_t> starts_;   // index in slots_ of the first track of each dataset
  std::vector<std::uint64_t> sizes_;
  std::uint64_t size_ = UINT64_MAX;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline sample_mix::sample_mix(std::span<const std::uint64_t> weights, std::span<const std::uint64_t> sizes,
                              std::uint64_t tracks, mix_until until, std::uint64_t length)
    : sizes_(sizes.begin(), sizes.end()) {
  if (weights.size() != sizes.size() || weights.empty()) {
    throw configuration_error("a mix needs one weight for each dataset, and a dataset");
  }
  if (tracks > std::uint64_t{1} << 24) throw configuration_error("tracks must be 1 to 2^24");
  if (weights.size() > tracks) {
    throw configuration_error("a mix of " + std::to_string(weights.size()) +
                              " datasets needs as many tracks; there are " + std::to_string(tracks));
  }
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const char* const wrong = weights[d] == 0 ? "has the weight 0" : sizes[d] == 0 ? "has no samples" : nullptr;
    if (wrong != nullptr) throw configuration_error("dataset " + std::to_string(d) + " of the mix " + wrong);
    if (sizes[d] > std::uint64_t{1} << 48) throw configuration_error("a dataset has at most 2^48 samples");
  }
  if (length != 0 && until != mix_until::forever) {
    throw configuration_error("a mix whose epoch ends with a dataset has no other length: that is for `forever`");
  }
  deal(quotas(weights, tracks), tracks);
  constexpr std::uint64_t most = std::uint64_t{1} << 60;
  if (until == mix_until::forever && length == 0) return;
  size_ = until == mix_until::forever ? length : until == mix_until::first_end ? UINT64_MAX : 0;
  for (std::size_t d = 0; d < sizes.size() && until != mix_until::forever; ++d) {
    const bool fits = sizes[d] / this->tracks(d) < most / tracks;
    if (until == mix_until::first_end) {
      if (fits) size_ = std::min(size_, find(d, sizes[d]));
    } else {
      size_ = fits ? std::max(size_, find(d, sizes[d] - 1) + 1) : UINT64_MAX;
    }
  }
  if (size_ > most) throw configuration_error("an epoch of the mix has more than 2^60 samples");
}

inline std::vector<std::uint64_t> sample_mix::quotas(std::span<const std::uint64_t> weights, std::uint64_t tracks) {
  std::uint64_t total = 0;
  for (const std::uint64_t w : weights) {
    if (w >= (std::uint64_t{1} << 40) - total) throw configuration_error("the weights of a mix add up to 2^40 or more");
    total += w;
  }
  std::vector<std::uint64_t> quota;
  std::vector<std::int64_t> missing;  // of a whole track, in units of 1 / total
  for (const std::uint64_t w : weights) {
    quota.push_back(std::max<std::uint64_t>(w * tracks / total, 1));
    missing.push_back(static_cast<std::int64_t>(w * tracks) - static_cast<std::int64_t>(quota.back() * total));
  }
  std::vector<std::size_t> by_missing(weights.size());
  std::iota(by_missing.begin(), by_missing.end(), std::size_t{0});
  std::stable_sort(by_missing.begin(), by_missing.end(),
                   [&](std::size_t a, std::size_t b) { return missing[a] > missing[b]; });
  std::uint64_t given = std::accumulate(quota.begin(), quota.end(), std::uint64_t{0});
  for (std::size_t i = 0; given < tracks; ++i, ++given) ++quota[by_missing[i % by_missing.size()]];
  for (; given > tracks; --given) --*std::max_element(quota.begin(), quota.end());
  return quota;
}

/// Track by track, to the dataset with the largest deficit: in time, and in the track's class modulo each divisor.
inline void sample_mix::deal(std::vector<std::uint64_t> quota, std::uint64_t tracks) {
  const std::size_t n = quota.size();
  std::vector<std::uint64_t> divisors;
  for (std::uint64_t p = 1; p <= std::max<std::uint64_t>(tracks / 8, 1); ++p) {
    if (tracks % p == 0) divisors.push_back(p);
  }
  std::vector<std::vector<std::int64_t>> debts;  // of each divisor, class and dataset, in units of 1 / tracks
  for (const std::uint64_t p : divisors) debts.emplace_back(static_cast<std::size_t>(p) * n, 0);
  std::vector<std::uint64_t> left = quota;
  std::vector<std::int64_t> owed(n);
  std::vector<std::uint32_t> dealt(n, 0);
  for (std::uint64_t t = 0; t < tracks; ++t) {
    std::fill(owed.begin(), owed.end(), 0);
    for (std::size_t i = 0; i < divisors.size(); ++i) {
      std::int64_t* const row = debts[i].data() + static_cast<std::size_t>(t % divisors[i]) * n;
      for (std::size_t d = 0; d < n; ++d) owed[d] += row[d] += static_cast<std::int64_t>(quota[d]);
    }
    std::size_t chosen = n;
    for (std::size_t d = 0; d < n; ++d) {
      if (left[d] != 0 && (chosen == n || owed[d] > owed[chosen])) chosen = d;
    }
    for (std::size_t i = 0; i < divisors.size(); ++i) {
      debts[i][static_cast<std::size_t>(t % divisors[i]) * n + chosen] -= static_cast<std::int64_t>(tracks);
    }
    --left[chosen];
    owners_.push_back(static_cast<std::uint32_t>(chosen));
    numbers_.push_back(dealt[chosen]++);
  }
  starts_.push_back(0);
  for (const std::uint64_t q : quota) starts_.push_back(starts_.back() + q);
  slots_.resize(static_cast<std::size_t>(tracks));
  for (std::uint64_t t = 0; t < tracks; ++t) {
    const auto i = static_cast<std::size_t>(t);
    slots_[static_cast<std::size_t>(starts_[owners_[i]]) + numbers_[i]] = static_cast<std::uint32_t>(t);
  }
}

inline sample_mix::place sample_mix::at(std::uint64_t epoch, std::uint64_t position) const {
  if (MILLRACE_UNLIKELY(position >= size_ || (epoch > 0 && size_ == UINT64_MAX)))
    detail::misused("a position of the mix was asked for that it does not have");
  const std::size_t d = owners_[static_cast<std::size_t>(position % owners_.size())];
  const std::uint64_t here = before(d, position);
  if (epoch == 0) return {d, here / sizes_[d], here % sizes_[d]};
  const wide n = wide{epoch} * samples(d) + here;
  return {d, static_cast<std::uint64_t>(n / sizes_[d]), static_cast<std::uint64_t>(n % sizes_[d])};
}

/// How many of a dataset's samples stand before a position of an epoch.
inline std::uint64_t sample_mix::before(std::size_t dataset, std::uint64_t position) const noexcept {
  const auto slot = static_cast<std::uint32_t>(position % owners_.size());
  const auto begin = slots_.begin() + static_cast<std::ptrdiff_t>(starts_[dataset]);
  const auto end = slots_.begin() + static_cast<std::ptrdiff_t>(starts_[dataset + 1]);
  const auto in_round = owners_[slot] == dataset ? numbers_[slot] : std::lower_bound(begin, end, slot) - begin;
  return position / owners_.size() * tracks(dataset) + static_cast<std::uint64_t>(in_round);
}

inline std::uint64_t sample_mix::find(std::size_t dataset, std::uint64_t n) const noexcept {
  const std::uint64_t own = tracks(dataset);
  return n / own * owners_.size() + slots_[static_cast<std::size_t>(starts_[dataset] + n % own)];
}

}  // namespace millrace
