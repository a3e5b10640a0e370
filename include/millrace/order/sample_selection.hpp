// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/order/sample_selection.ipp>
#endif
