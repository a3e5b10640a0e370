// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace::detail {

/// A step of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014):
/// the generator's state moved on and its output function applied. A bijection of the 64-bit words.
inline constexpr std::uint64_t mix64(std::uint64_t z) noexcept {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// One word of three, in which each place counts by itself: of (seed 7, epoch 1) and (seed 8, epoch 0) come different
/// ones, as would not be so if the two were added.
inline constexpr std::uint64_t key_of(std::uint64_t a, std::uint64_t b, std::uint64_t c) noexcept {
  return mix64(mix64(mix64(a) ^ b) ^ c);
}

/// Of a text: FNV-1a of 64 bits (G. Fowler, L. C. Noll, K.-P. Vo) through a step of SplitMix64. It is written into
/// files, and what samples draw depends on it.
inline constexpr std::uint64_t text_hash(std::string_view text) noexcept {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix64(h);
}

}  // namespace millrace::detail
