// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/order/permutation.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Which samples of an index an epoch has: those of a subset, each once, or some that are drawn by weights, others in
/// each epoch. Entry `x` of an epoch is a pure function of it, the seed and the epoch: nothing is materialised.
/// Neighbouring entries are neighbours in the shards, as far as the samples left out allow. Made by detail::select().
///
/// A subset takes an eighth of a byte and some for each sample of the index, weights 4.1 bytes for each: 14 and 410 MB
/// for 10^8 samples.
///
/// **Draws with replacement.** The weights laid end to end are cut into equal strata, one for every 64 entries; the
/// entries of a stratum are drawn in it independently, and sorted. So each sample comes in proportion to its weight,
/// with a little less variance than if all entries were drawn from the whole.
///
/// **Draws without replacement.** A sample comes once or not at all. No weight counts for more than comes to one sample
/// an epoch; then the entries are taken at equal distances along the weights, which lie in another order in each epoch
/// in every 64 samples. So each sample's chance is in proportion to its weight, up to 1.
///
/// Weights are rounded to 2^-32 of the largest, and not to 0. All numbers are whole: every platform draws alike.
class sample_selection {
 public:
  /// A subset of so many samples of the index: those whose bit is set (64 a word, the lowest first).
  sample_selection(std::uint64_t samples, std::vector<std::uint64_t> bits);
  /// A draw of `entries` from a subset, or from all if `subset` is null, by weights, one for each of its samples; the
  /// largest is 2^32 - 1 at most. Without replacement no more entries than samples with a weight.
  sample_selection(const sample_selection* subset, std::vector<std::uint32_t> weights, std::uint64_t entries,
                   bool replacement);

  /// Entries of an epoch.
  std::uint64_t size() const noexcept { return entries_; }
  /// True if they are drawn.
  bool drawn() const noexcept { return !weights_.empty(); }
  /// True if a sample may come several times an epoch.
  bool copies() const noexcept { return drawn() && replacement_; }
  hash128 digest() const noexcept { return digest_; }

  /// True if sample `number` of the index is in the subset.
  bool has(std::uint64_t number) const noexcept {
    return bits_.empty() || (bits_[static_cast<std::size_t>(number / 64)] >> number % 64 & 1) != 0;
  }
  /// The weights of the draw, one for each sample of the subset; empty if entries are not drawn.
  const std::vector<std::uint32_t>& weights() const noexcept { return weights_; }

 private:
  friend class selected_entries;
  __extension__ typedef unsigned __int128 wide;  // nvcc takes no `using` here
  static constexpr std::uint64_t group = 64;     // entries of a stratum, and samples of a block of weights
  static constexpr std::size_t words = 8;        // of a block of bits

  void count_bits();
  void limit_weights();
  std::uint64_t total() const noexcept { return sums_.back(); }
  /// Number in the index of sample `n` of the subset.
  std::uint64_t in_index(std::uint64_t n) const noexcept;
  /// The sample of the subset at a place along the weights; in each block they lie in the order that `key` gives.
  std::uint64_t at_weight(std::uint64_t place, bool mixed, std::uint64_t key) const noexcept;

  std::uint64_t entries_ = 0;
  bool replacement_ = true;
  std::vector<std::uint64_t> bits_;    // empty: all samples
  std::vector<std::uint64_t> counts_;  // how many are set before every block of bits
  std::vector<std::uint32_t> weights_;
  std::vector<std::uint64_t> sums_;    // before every block of weights, and of all
  hash128 digest_;
};

/// Goes along the entries of an epoch. The selection must outlive it.
class selected_entries {
 public:
  selected_entries() = default;
  selected_entries(const sample_selection& of, std::uint64_t seed, std::uint64_t epoch) noexcept
      : of_(&of), key_(detail::mix64(detail::key_of(seed, epoch, 4))) {}

  /// The number in the index of entry `x`, below size(). Fast if the entry before was near.
  std::uint64_t operator()(std::uint64_t x);

 private:
  using wide = sample_selection::wide;
  const std::uint64_t* places_of(std::uint64_t stratum);

  const sample_selection* of_ = nullptr;
  std::uint64_t key_ = 0;
  std::uint64_t strata_[2] = {UINT64_MAX, UINT64_MAX};  // whose places are kept
  std::vector<std::uint64_t> places_;                   // along the weights
  bool latest_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::uint64_t sample_selection::in_index(std::uint64_t n) const noexcept {
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

inline std::uint64_t sample_selection::at_weight(std::uint64_t place, bool mixed, std::uint64_t key) const noexcept {
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

inline const std::uint64_t* selected_entries::places_of(std::uint64_t stratum) {
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

inline std::uint64_t selected_entries::operator()(std::uint64_t x) {
  if (!of_->drawn()) return of_->in_index(x);
  if (of_->replacement_) {
    const std::uint64_t place = places_of(x / sample_selection::group)[x % sample_selection::group];
    return of_->in_index(of_->at_weight(place, false, 0));
  }
  const wide along = wide{x} * of_->total() + static_cast<std::uint64_t>(wide{key_} * of_->total() >> 64);
  return of_->in_index(of_->at_weight(static_cast<std::uint64_t>(along / of_->entries_), true, key_));
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/order/sample_selection.ipp>
#endif
