// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>

namespace millrace::detail {

// Three digits of a number below 999.5, unless it is a whole number of the smallest unit.
MILLRACE_INLINE std::string three_digits(double value, bool whole) {
  char text[32];
  std::snprintf(text, sizeof text, whole || value >= 99.95 ? "%.0f" : value >= 9.995 ? "%.1f" : "%.2f", value);
  return text;
}

}  // namespace millrace::detail

namespace millrace {

MILLRACE_INLINE std::string format_bytes(double bytes) {
  static const char* const units[] = {" B", " kB", " MB", " GB", " TB", " PB"};
  int unit = 0;
  for (; bytes >= 999.5 && unit < 5; ++unit) bytes /= 1000;
  return detail::three_digits(bytes, unit == 0) + units[unit];
}

MILLRACE_INLINE std::string format_count(double count) {
  static const char* const units[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  for (; count >= 999.5 && unit < 4; ++unit) count /= 1000;
  return detail::three_digits(count, unit == 0) + units[unit];
}

}  // namespace millrace
