// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/order/sample_selection.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE sample_selection::sample_selection(std::uint64_t samples, std::vector<std::uint64_t> bits)
    : bits_(std::move(bits)) {
  count_bits();
  hasher128 all;
  all.add(samples);
  for (const std::uint64_t word : bits_) all.add(word);
  digest_ = all.value();
}

MILLRACE_INLINE sample_selection::sample_selection(const sample_selection* subset, std::vector<std::uint32_t> weights,
                                                   std::uint64_t entries, bool replacement)
    : replacement_(replacement), weights_(std::move(weights)) {
  hasher128 all;
  if (subset != nullptr) {
    bits_ = subset->bits_;
    count_bits();
    all.add(subset->digest());
  }
  entries_ = entries;
  if (!replacement_) limit_weights();
  sums_.reserve(weights_.size() / group + 2);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (i % group == 0) sums_.push_back(sum);
    sum += weights_[i];
    all.add(weights_[i]);
  }
  sums_.push_back(sum);
  all.add(entries_);
  all.add(replacement_ ? 1U : 0U);
  digest_ = all.value();
}

MILLRACE_INLINE void sample_selection::count_bits() {
  counts_.reserve(bits_.size() / words + 1);
  for (std::size_t w = 0; w < bits_.size(); ++w) {
    if (w % words == 0) counts_.push_back(entries_);
    entries_ += static_cast<std::uint64_t>(std::popcount(bits_[w]));
  }
}

/// No weight may come to more than one entry: those that do get the share that the others leave to each of them.
MILLRACE_INLINE void sample_selection::limit_weights() {
  std::uint64_t most = UINT32_MAX;
  for (;;) {
    std::uint64_t rest = 0;
    std::uint64_t limited = 0;
    for (const std::uint32_t w : weights_) {
      if (w > most) {
        ++limited;
      } else {
        rest += w;
      }
    }
    const std::uint64_t limit = rest / (entries_ - limited);  // fewer are limited: each has more than such a share
    if (limit >= most) break;
    most = limit;
  }
  for (std::uint32_t& w : weights_) w = static_cast<std::uint32_t>(std::min<std::uint64_t>(w, most));
}

MILLRACE_INLINE std::uint64_t sample_selection::in_index(std::uint64_t n) const noexcept {
  if (bits_.empty()) return n;
  const auto after = std::upper_bound(counts_.begin(), counts_.end(), n);
  const auto block = static_cast<std::size_t>(after - counts_.begin()) - 1;
  n -= counts_[block];
  std::size_t w = block * words;
  for (;; ++w) {
    const auto set = static_cast<std::uint64_t>(std::popcount(bits_[w]));
    if (n < set) break;
    n -= set;
  }
  std::uint64_t word = bits_[w];
  for (; n > 0; --n) word &= word - 1;
  return w * 64 + static_cast<std::uint64_t>(std::countr_zero(word));
}

MILLRACE_INLINE std::uint64_t sample_selection::at_weight(std::uint64_t place, bool mixed,
                                                          std::uint64_t key) const noexcept {
  const auto after = std::upper_bound(sums_.begin(), sums_.end(), place);
  const auto block = static_cast<std::uint64_t>(after - sums_.begin()) - 1;
  place -= sums_[static_cast<std::size_t>(block)];
  const std::uint64_t first = block * group;
  const std::uint64_t length = std::min<std::uint64_t>(group, weights_.size() - first);
  const permutation order = mixed ? permutation(length, detail::mix64(key ^ block)) : permutation();
  for (std::uint64_t i = 0;; ++i) {
    const std::uint64_t n = first + (mixed ? order(i) : i);
    const std::uint64_t weight = weights_[static_cast<std::size_t>(n)];
    if (place < weight) return n;
    place -= weight;
  }
}

MILLRACE_INLINE const std::uint64_t* selected_entries::places_of(std::uint64_t stratum) {
  constexpr std::uint64_t group = sample_selection::group;
  for (const bool which : {latest_, !latest_}) {
    if (strata_[which] == stratum) return places_.data() + (which ? group : 0);
  }
  if (places_.empty()) places_.resize(2 * group);
  latest_ = !latest_;
  strata_[latest_] = stratum;
  std::uint64_t* const places = places_.data() + (latest_ ? group : 0);
  const std::uint64_t first = stratum * group;
  const std::uint64_t count = std::min(group, of_->entries_ - first);
  for (std::uint64_t i = 0; i < count; ++i) {
    const wide at = wide{detail::mix64(key_ ^ (first + i))} * count;  // in the stratum, in entries of 2^64
    const auto part = static_cast<std::uint64_t>(wide{static_cast<std::uint64_t>(at)} * of_->total() >> 64);
    const wide along = wide{first + static_cast<std::uint64_t>(at >> 64)} * of_->total() + part;
    places[i] = static_cast<std::uint64_t>(along / of_->entries_);
  }
  std::sort(places, places + count);
  return places;
}

MILLRACE_INLINE std::uint64_t selected_entries::operator()(std::uint64_t x) {
  if (!of_->drawn()) return of_->in_index(x);
  if (of_->replacement_) {
    const std::uint64_t place = places_of(x / sample_selection::group)[x % sample_selection::group];
    return of_->in_index(of_->at_weight(place, false, 0));
  }
  const wide along = wide{x} * of_->total() + static_cast<std::uint64_t>(wide{key_} * of_->total() >> 64);
  return of_->in_index(of_->at_weight(static_cast<std::uint64_t>(along / of_->entries_), true, key_));
}

}  // namespace millrace::inline MILLRACE_ABI
