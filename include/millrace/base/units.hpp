// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// 1024 bytes.
inline constexpr std::size_t KiB = std::size_t(1) << 10;
/// 1024 KiB, in bytes.
inline constexpr std::size_t MiB = std::size_t(1) << 20;
/// 1024 MiB, in bytes.
inline constexpr std::size_t GiB = std::size_t(1) << 30;
/// 1024 GiB, in bytes.
inline constexpr std::size_t TiB = std::size_t(1) << 40;

/// "512 B", "16.0 MB", "1.84 GB": decimal units, as disks and networks count.
std::string format_bytes(double bytes);

/// "950", "12.3k", "4.56M": counts and rates.
std::string format_count(double count);

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// The sum and the product of two sizes, of which a program may have chosen one; the largest number if they are
/// more.
constexpr std::size_t added(std::size_t a, std::size_t b) noexcept { return b > SIZE_MAX - a ? SIZE_MAX : a + b; }
constexpr std::size_t multiplied(std::size_t a, std::size_t b) noexcept {
  return a != 0 && b > SIZE_MAX / a ? SIZE_MAX : a * b;
}

}  // namespace millrace::detail

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace millrace::inline MILLRACE_ABI::detail {

// Three digits of a number below 999.5, unless it is a whole number of the smallest unit.
inline std::string three_digits(double value, bool whole) {
  char text[32];
  std::snprintf(text, sizeof text, whole || value >= 99.95 ? "%.0f" : value >= 9.995 ? "%.1f" : "%.2f", value);
  return text;
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

inline std::string format_bytes(double bytes) {
  static const char* const units[] = {" B", " kB", " MB", " GB", " TB", " PB"};
  int unit = 0;
  for (; bytes >= 999.5 && unit < 5; ++unit) bytes /= 1000;
  return detail::three_digits(bytes, unit == 0) + units[unit];
}

inline std::string format_count(double count) {
  static const char* const units[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  for (; count >= 999.5 && unit < 4; ++unit) count /= 1000;
  return detail::three_digits(count, unit == 0) + units[unit];
}

}  // namespace millrace
