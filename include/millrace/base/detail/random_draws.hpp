// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace millrace::detail {

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
