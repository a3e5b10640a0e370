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
#include <millrace/order/sample_mix.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE sample_mix::sample_mix(std::span<const std::uint64_t> weights, std::span<const std::uint64_t> sizes,
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

MILLRACE_INLINE std::vector<std::uint64_t> sample_mix::quotas(std::span<const std::uint64_t> weights,
                                                              std::uint64_t tracks) {
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
MILLRACE_INLINE void sample_mix::deal(std::vector<std::uint64_t> quota, std::uint64_t tracks) {
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

MILLRACE_INLINE sample_mix::place sample_mix::at(std::uint64_t epoch, std::uint64_t position) const {
  if (MILLRACE_UNLIKELY(position >= size_ || (epoch > 0 && size_ == UINT64_MAX)))
    detail::misused("a position of the mix was asked for that it does not have");
  const std::size_t d = owners_[static_cast<std::size_t>(position % owners_.size())];
  const std::uint64_t here = before(d, position);
  if (epoch == 0) return {d, here / sizes_[d], here % sizes_[d]};
  const wide n = wide{epoch} * samples(d) + here;
  return {d, static_cast<std::uint64_t>(n / sizes_[d]), static_cast<std::uint64_t>(n % sizes_[d])};
}

/// How many of a dataset's samples stand before a position of an epoch.
MILLRACE_INLINE std::uint64_t sample_mix::before(std::size_t dataset, std::uint64_t position) const noexcept {
  const auto slot = static_cast<std::uint32_t>(position % owners_.size());
  const auto begin = slots_.begin() + static_cast<std::ptrdiff_t>(starts_[dataset]);
  const auto end = slots_.begin() + static_cast<std::ptrdiff_t>(starts_[dataset + 1]);
  const auto in_round = owners_[slot] == dataset ? numbers_[slot] : std::lower_bound(begin, end, slot) - begin;
  return position / owners_.size() * tracks(dataset) + static_cast<std::uint64_t>(in_round);
}

MILLRACE_INLINE std::uint64_t sample_mix::find(std::size_t dataset, std::uint64_t n) const noexcept {
  const std::uint64_t own = tracks(dataset);
  return n / own * owners_.size() + slots_[static_cast<std::size_t>(starts_[dataset] + n % own)];
}

}  // namespace millrace::inline MILLRACE_ABI
