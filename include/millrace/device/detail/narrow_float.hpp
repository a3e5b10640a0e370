// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/compiler.hpp>

namespace millrace::detail {

/// The nearest number of 16 bits, ties to even; infinite beyond the largest. IEEE 754 binary16.
MILLRACE_HOST_DEVICE constexpr std::uint16_t to_f16(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (size >= 0x477ff000) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (size < 0x33000000) return sign;  // less than half of the smallest
  const auto exponent = static_cast<int>(size >> 23);
  // Above 2^-14 ten bits are left of the fraction, below one less for every power of two.
  const int dropped = exponent >= 113 ? 13 : 126 - exponent;
  const std::uint32_t fraction = (size & 0x7fffff) | 0x800000;
  std::uint32_t kept = fraction >> dropped;
  const std::uint32_t rest = fraction & ((1u << dropped) - 1);
  const std::uint32_t tie = 1u << (dropped - 1);
  if (rest > tie || (rest == tie && (kept & 1) != 0)) ++kept;
  if (exponent >= 113) kept += static_cast<std::uint32_t>(exponent - 113) << 10;
  return static_cast<std::uint16_t>(sign | kept);
}

/// The upper half of a float, rounded to nearest, ties to even.
MILLRACE_HOST_DEVICE constexpr std::uint16_t to_bf16(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace millrace::detail
