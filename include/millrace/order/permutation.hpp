// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A random permutation of the numbers 0 to size - 1 that is computed, not stored: 80 bytes whatever the size, and any
/// value by itself.
///
/// Six rounds of an unbalanced Feistel network on the next power of two (16 at least), by the generator's keys; a
/// number outside is sent through again until it is inside (J. Black, P. Rogaway, "Ciphers with arbitrary finite
/// domains", CT-RSA 2002), less than twice on average, and never if the size is a power of two from 16 on. The
/// permutation of a key is part of the library's contract: the order of an epoch depends on it. It mixes well (places
/// of a value by chi squared: 0.96 to 1.04 of chance from size 16 on, a few per cent worse below), and is no cipher.
class permutation {
 public:
  /// The most numbers: a round makes 24 bits.
  static constexpr std::uint64_t most = std::uint64_t{1} << 48;

  permutation() = default;
  /// `size` at most `most`; a configuration_error otherwise.
  permutation(std::uint64_t size, std::uint64_t key) : size_(size) {
    if (size > most) throw configuration_error("a permutation has at most 2^48 numbers");
    if (size < 2) return;
    const int width = static_cast<int>(std::bit_width(size - 1));
    const int bits = width < 4 ? 4 : width;
    low_bits_ = bits / 2;
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
    for (std::uint64_t r = 0; r < rounds; ++r) keys_[r] = detail::mix64(key + r);
  }

  std::uint64_t size() const noexcept { return size_; }
  /// Where `x` goes; it must be below size().
  std::uint64_t operator()(std::uint64_t x) const noexcept {
    if (size_ < 2) return x;
    do {
      std::uint64_t high = x >> low_bits_;
      std::uint64_t low = x & low_mask_;
      high ^= round(low, keys_[0]) & high_mask_;
      low ^= round(high, keys_[1]) & low_mask_;
      high ^= round(low, keys_[2]) & high_mask_;
      low ^= round(high, keys_[3]) & low_mask_;
      high ^= round(low, keys_[4]) & high_mask_;
      low ^= round(high, keys_[5]) & low_mask_;
      x = (high << low_bits_) | low;
    } while (x >= size_);
    return x;
  }

 private:
  static constexpr int rounds = 6;
  static std::uint64_t round(std::uint64_t half, std::uint64_t key) noexcept {
    std::uint64_t z = (half + key) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    return z >> 40;
  }

  std::uint64_t size_ = 1;
  int low_bits_ = 0;
  std::uint64_t low_mask_ = 0;
  std::uint64_t high_mask_ = 0;
  std::uint64_t keys_[rounds] = {};
};

}  // namespace millrace::inline MILLRACE_ABI
