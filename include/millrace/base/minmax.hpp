// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace millrace {

/// \file
/// std::min, std::max and std::clamp for numbers, without <algorithm>: of that header the library uses little else, and
/// it makes millrace.hpp take 3 % longer to compile (g++ 12, -O0).

/// The smaller one, without <algorithm>; the first where they are equal.
template <class T>
constexpr T min_of(T a, T b) noexcept {
  return b < a ? b : a;
}
/// The larger one; the first where they are equal.
template <class T>
constexpr T max_of(T a, T b) noexcept {
  return a < b ? b : a;
}
/// `value`, or the end of [low, high] that it is beyond.
template <class T>
constexpr T clamped(T value, T low, T high) noexcept {
  return value < low ? low : high < value ? high : value;
}

}  // namespace millrace
