// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/date.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE tm utc(std::int64_t unix_seconds) noexcept {
  const time_t t = static_cast<time_t>(unix_seconds);
  tm out{};
  ::gmtime_r(&t, &out);
  return out;
}

MILLRACE_INLINE std::string http_date(std::int64_t unix_seconds) {
  static const char* const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static const char* const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const tm t = utc(unix_seconds);
  char text[64];
  std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[t.tm_wday], t.tm_mday, months[t.tm_mon],
                t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
  return text;
}

MILLRACE_INLINE std::string iso_date(std::int64_t unix_seconds) {
  const tm t = utc(unix_seconds);
  char text[80];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.000Z", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
                t.tm_hour, t.tm_min, t.tm_sec);
  return text;
}

MILLRACE_INLINE std::optional<std::int64_t> parse_basic_date(std::string_view text) noexcept {
  if (text.size() != 16 || text[8] != 'T' || text[15] != 'Z') return std::nullopt;
  int numbers[6];
  static constexpr int begins[] = {0, 4, 6, 9, 11, 13};
  static constexpr int lengths[] = {4, 2, 2, 2, 2, 2};
  for (int i = 0; i < 6; ++i) {
    numbers[i] = 0;
    for (int j = 0; j < lengths[i]; ++j) {
      const char c = text[static_cast<std::size_t>(begins[i] + j)];
      if (c < '0' || c > '9') return std::nullopt;
      numbers[i] = numbers[i] * 10 + (c - '0');
    }
  }
  tm t{};
  t.tm_year = numbers[0] - 1900;
  t.tm_mon = numbers[1] - 1;
  t.tm_mday = numbers[2];
  t.tm_hour = numbers[3];
  t.tm_min = numbers[4];
  t.tm_sec = numbers[5];
  const std::int64_t seconds = ::timegm(&t);
  const tm back = utc(seconds);
  if (back.tm_mon != numbers[1] - 1 || back.tm_mday != numbers[2] || back.tm_hour != numbers[3] ||
      back.tm_min != numbers[4] || back.tm_sec != numbers[5]) {
    return std::nullopt;
  }
  return seconds;
}

}  // namespace millrace::s3_server::detail
