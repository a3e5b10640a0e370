// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/base/rng.hpp>

namespace millrace {

MILLRACE_INLINE std::uint64_t rng::next() noexcept {
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

MILLRACE_INLINE std::uint64_t rng::below(std::uint64_t bound) noexcept {
  __extension__ using wide = unsigned __int128;
  wide m = static_cast<wide>(next()) * bound;
  auto low = static_cast<std::uint64_t>(m);
  if (low < bound) {
    const std::uint64_t threshold = (0 - bound) % bound;
    while (low < threshold) {
      m = static_cast<wide>(next()) * bound;
      low = static_cast<std::uint64_t>(m);
    }
  }
  return static_cast<std::uint64_t>(m >> 64);
}

MILLRACE_INLINE std::uint64_t rng::split_mix(std::uint64_t& x) noexcept {
  std::uint64_t z = (x += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

MILLRACE_INLINE std::uint64_t rng::combine(std::uint64_t seed, std::uint64_t epoch, std::uint64_t purpose) noexcept {
  std::uint64_t x = seed;
  std::uint64_t mixed = split_mix(x);
  x = mixed ^ epoch;
  mixed = split_mix(x);
  x = mixed ^ purpose;
  return split_mix(x);
}

}  // namespace millrace
