// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/detail/mix64.hpp>
#include <millrace/base/detail/random_draws.hpp>

namespace millrace {

/// A random generator of one sample's own, for one purpose: its words are a pure function of (seed, epoch, shard,
/// ordinal, purpose) and their number. So augmentation is the same on any thread, machine and number of ranks, and
/// after a resume. 48 bytes, no state elsewhere, nothing to warm up.
///
/// Philox2x64-10 (J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011), a
/// counter-based generator: the key is made of seed, epoch and purpose, the counter of the sample and the number of the
/// draw. This sequence is part of the library's contract.
class sample_rng {
 public:
  /// `shard` is a number that stands for the shard: origin::random() takes the hash of its URL.
  sample_rng(std::uint64_t seed, std::uint64_t epoch, std::uint64_t shard, std::uint64_t ordinal,
             std::uint64_t purpose) noexcept
      : key_(detail::key_of(seed, epoch, purpose)), sample_(detail::mix64(detail::mix64(shard) ^ ordinal)) {}

  /// The next 64 random bits.
  std::uint64_t next() noexcept {
    const std::uint64_t n = drawn_++;
    if (n % 2 == 0) {
      words_[0] = n / 2;
      words_[1] = sample_;
      block(words_, key_);
    }
    return words_[n % 2];
  }
  /// Uniform in [0, bound); `bound` must not be 0.
  std::uint64_t below(std::uint64_t bound) noexcept { return detail::draw_below(*this, bound); }
  /// Uniform in [0, 1) with 53 random bits.
  double uniform() noexcept { return detail::draw_uniform(*this); }

  /// The generator's function itself: a counter of two words becomes two random words.
  static void block(std::uint64_t (&counter)[2], std::uint64_t key) noexcept {
    __extension__ using wide = unsigned __int128;
    for (int round = 0; round < 10; ++round) {
      const wide product = static_cast<wide>(counter[0]) * 0xd2b74407b1ce6e93u;
      counter[0] = static_cast<std::uint64_t>(product >> 64) ^ key ^ counter[1];
      counter[1] = static_cast<std::uint64_t>(product);
      key += 0x9e3779b97f4a7c15u;
    }
  }

 private:
  std::uint64_t key_;
  std::uint64_t sample_;
  std::uint64_t drawn_ = 0;
  std::uint64_t words_[2] = {};
};

}  // namespace millrace
