// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace millrace {

inline constexpr std::size_t KiB = std::size_t(1) << 10;
inline constexpr std::size_t MiB = std::size_t(1) << 20;
inline constexpr std::size_t GiB = std::size_t(1) << 30;

/// "512 B", "16.0 MB", "1.84 GB": decimal units, as disks and networks count.
inline std::string format_bytes(double bytes) {
  static const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 5) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text,
                unit == 0      ? "%.0f %s"
                : bytes >= 100 ? "%.0f %s"
                : bytes >= 10  ? "%.1f %s"
                               : "%.2f %s",
                bytes, units[unit]);
  return text;
}

/// "950", "12.3k", "4.56M": counts and rates.
inline std::string format_count(double count) {
  static const char* const units[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  while (count >= 999.5 && unit < 4) {
    count /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text,
                unit == 0      ? "%.0f%s"
                : count >= 100 ? "%.0f%s"
                : count >= 10  ? "%.1f%s"
                               : "%.2f%s",
                count, units[unit]);
  return text;
}

}  // namespace millrace
