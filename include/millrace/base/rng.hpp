// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <millrace/base/detail/mix64.hpp>
#include <millrace/base/detail/random_draws.hpp>

namespace millrace {

/// The library's portable random generator: the same numbers on every platform, compiler and standard library.
///
/// xoshiro256** 1.0 (D. Blackman, S. Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS 47, 2021),
/// its state filled by SplitMix64 from a seed. Numbers below a bound by D. Lemire's multiply-and-reject ("Fast random
/// integer generation in an interval", ACM TOMACS 29, 2019), so they are unbiased. This sequence is part of the
/// library's contract: the order of an epoch depends on it.
class rng {
 public:
  explicit rng(std::uint64_t seed) noexcept {
    for (std::uint64_t& word : state_) {
      word = detail::mix64(seed);
      seed += 0x9e3779b97f4a7c15u;
    }
  }

  /// A generator for one purpose of one epoch: independent sequences from one user seed.
  rng(std::uint64_t seed, std::uint64_t epoch, std::uint64_t purpose) noexcept : rng(detail::key_of(seed, epoch, purpose)) {}

  /// The next 64 random bits.
  std::uint64_t next() noexcept {
    const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  /// Uniform in [0, bound); `bound` must not be 0.
  std::uint64_t below(std::uint64_t bound) noexcept { return detail::draw_below(*this, bound); }

  /// Uniform in [0, 1) with 53 random bits.
  double uniform() noexcept { return detail::draw_uniform(*this); }

 private:
  static std::uint64_t rotate(std::uint64_t x, int k) noexcept { return (x << k) | (x >> (64 - k)); }
  std::uint64_t state_[4];
};

/// Fisher-Yates from the back (Durstenfeld 1964) with rng::below: the documented permutation of the library. Works on
/// anything with size() and operator[].
template <class Container>
void permute(Container& items, rng& random) {
  for (std::size_t i = items.size(); i > 1; --i) {
    const auto j = static_cast<std::size_t>(random.below(i));
    if (j != i - 1) {
      using std::swap;
      swap(items[i - 1], items[j]);
    }
  }
}

}  // namespace millrace
