// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// One step of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014):
/// the generator's state is advanced and its output function applied. A bijection of the 64-bit words.
inline constexpr std::uint64_t mix64(std::uint64_t z) noexcept {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Mixes three words into one, not symmetrically: (seed 7, epoch 1) and (seed 8, epoch 0) give different words, which
/// they would not if the two were added.
inline constexpr std::uint64_t key_of(std::uint64_t a, std::uint64_t b, std::uint64_t c) noexcept {
  return mix64(mix64(mix64(a) ^ b) ^ c);
}

/// The hash of a text: FNV-1a of 64 bits (G. Fowler, L. C. Noll, K.-P. Vo) through a step of SplitMix64. It is written
/// into files, and the random numbers of samples depend on it.
inline constexpr std::uint64_t text_hash(std::string_view text) noexcept {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix64(h);
}

/// Uniform in [0, bound) of a generator's 64-bit words, unbiased; `bound` must not be 0. D. Lemire's
/// multiply-and-reject
/// ("Fast random integer generation in an interval", ACM TOMACS 29, 2019).
template <class Generator>
std::uint64_t draw_below(Generator& random, std::uint64_t bound) noexcept {
  __extension__ using wide = unsigned __int128;
  wide m = static_cast<wide>(random.next()) * bound;
  auto low = static_cast<std::uint64_t>(m);
  if (low < bound) {
    const std::uint64_t threshold = (0 - bound) % bound;
    while (low < threshold) {
      m = static_cast<wide>(random.next()) * bound;
      low = static_cast<std::uint64_t>(m);
    }
  }
  return static_cast<std::uint64_t>(m >> 64);
}

/// Uniform in [0, 1) with 53 random bits.
template <class Generator>
double draw_uniform(Generator& random) noexcept {
  return static_cast<double>(random.next() >> 11) * 0x1.0p-53;
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// The library's portable random generator: the same numbers on every platform, compiler and standard library.
///
/// xoshiro256** 1.0 (D. Blackman, S. Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS 47, 2021),
/// its state filled by SplitMix64 from a seed. Numbers below a bound by D. Lemire's multiply-and-reject ("Fast random
/// integer generation in an interval", ACM TOMACS 29, 2019), so they are unbiased. This sequence is part of the
/// library's contract: the order of an epoch depends on it.
class rng {
 public:
  explicit rng(std::uint64_t seed) noexcept;

  /// A generator for one purpose of one epoch: independent sequences from one user seed.
  rng(std::uint64_t seed, std::uint64_t epoch, std::uint64_t purpose) noexcept
      : rng(detail::key_of(seed, epoch, purpose)) {}

  /// The next 64 random bits.
  std::uint64_t next() noexcept;

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

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline rng::rng(std::uint64_t seed) noexcept {
  for (std::uint64_t& word : state_) {
    word = detail::mix64(seed);
    seed += 0x9e3779b97f4a7c15u;
  }
}

inline std::uint64_t rng::next() noexcept {
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

}  // namespace millrace
