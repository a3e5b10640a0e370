// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::text::detail {

MILLRACE_INLINE std::optional<std::int64_t> checked_unix_from_civil(const civil_time& t) noexcept {
  if (t.year < 1970 || t.year > 9999 || t.month < 1 || t.month > 12 || t.day < 1) return std::nullopt;
  if (t.day > days_in_month(t.year, t.month) || t.hour > 23 || t.minute > 59 || t.second > 60) return std::nullopt;
  std::int64_t days = days_before_year(t.year) + t.day - 1;
  for (int month = 1; month < t.month; ++month) days += days_in_month(t.year, month);
  return days * 86400 + t.hour * 3600 + t.minute * 60 + (t.second == 60 ? 59 : t.second);
}

MILLRACE_INLINE bool date_cursor::literal(char c) noexcept {
  if (rest_.empty() || rest_.front() != c) return false;
  rest_.remove_prefix(1);
  return true;
}

MILLRACE_INLINE bool date_cursor::text(std::string_view expected) noexcept {
  if (rest_.substr(0, expected.size()) != expected) return false;
  rest_.remove_prefix(expected.size());
  return true;
}

MILLRACE_INLINE bool date_cursor::word(std::string_view expected) noexcept {
  if (!equal_ignoring_case(rest_.substr(0, expected.size()), expected)) return false;
  rest_.remove_prefix(expected.size());
  return true;
}

MILLRACE_INLINE bool date_cursor::number(int& value, std::size_t digits) noexcept {
  if (rest_.size() < digits) return false;
  int read = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    if (!is_digit(rest_[i])) return false;
    read = read * 10 + (rest_[i] - '0');
  }
  value = read;
  rest_.remove_prefix(digits);
  return true;
}

MILLRACE_INLINE bool date_cursor::skip_digits() noexcept {
  std::size_t count = 0;
  while (count < rest_.size() && is_digit(rest_[count])) ++count;
  rest_.remove_prefix(count);
  return count > 0;
}

MILLRACE_INLINE bool date_cursor::word_of(std::string_view names, int& position) noexcept {
  if (rest_.size() < 3) return false;
  for (std::size_t i = 0; i < names.size(); i += 3) {
    if (names.substr(i, 3) != rest_.substr(0, 3)) continue;
    position = static_cast<int>(i / 3) + 1;
    rest_.remove_prefix(3);
    return true;
  }
  return false;
}

}  // namespace millrace::text::detail

namespace millrace::inline MILLRACE_ABI::text {

MILLRACE_INLINE std::optional<std::int64_t> parse_http_date(std::string_view text, std::int64_t now) {
  detail::date_cursor in(text);
  civil_time t;
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) {  // asctime: Sun Nov  6 08:49:37 1994
    if (!in.word_of(detail::day_names) || !in.literal(' ')) return std::nullopt;
    if (!in.month(t.month) || !in.literal(' ')) return std::nullopt;
    const bool padded = in.literal(' ');
    if (!in.number(t.day, padded ? 1 : 2) || !in.literal(' ')) return std::nullopt;
    if (!in.time_of_day(t) || !in.literal(' ') || !in.number(t.year, 4) || !in.at_end()) return std::nullopt;
    return detail::checked_unix_from_civil(t);
  }
  in.skip(comma + 1);
  if (!in.literal(' ') || !in.number(t.day, 2)) return std::nullopt;
  const char separator = in.peek();
  if (separator == ' ') {  // Sun, 06 Nov 1994 08:49:37 GMT
    in.skip(1);
    if (!in.month(t.month) || !in.literal(' ') || !in.number(t.year, 4)) return std::nullopt;
  } else if (separator == '-') {  // Sunday, 06-Nov-94 08:49:37 GMT
    in.skip(1);
    int short_year = 0;
    if (!in.month(t.month) || !in.literal('-') || !in.number(short_year, 2)) return std::nullopt;
    // A year that looks more than 50 years ahead is one of the last century.
    const int this_year = civil_from_unix(now).year;
    t.year = this_year / 100 * 100 + short_year;
    if (t.year > this_year + 50) t.year -= 100;
  } else {
    return std::nullopt;
  }
  if (!in.literal(' ') || !in.time_of_day(t) || !in.literal(' ')) return std::nullopt;
  if (!in.text("GMT") || !in.at_end()) return std::nullopt;
  return detail::checked_unix_from_civil(t);
}

MILLRACE_INLINE std::optional<std::int64_t> parse_iso8601(std::string_view text) {
  detail::date_cursor in(trimmed(text));
  civil_time t;
  if (!in.number(t.year, 4)) return std::nullopt;
  const bool compact = !in.literal('-');
  if (!in.number(t.month, 2) || (!compact && !in.literal('-')) || !in.number(t.day, 2)) return std::nullopt;
  if (!in.word("T") && (compact || !in.literal(' '))) return std::nullopt;
  if (!in.number(t.hour, 2) || (!compact && !in.literal(':')) || !in.number(t.minute, 2) ||
      (!compact && !in.literal(':')) || !in.number(t.second, 2)) {
    return std::nullopt;
  }
  if ((in.literal('.') || in.literal(',')) && !in.skip_digits()) return std::nullopt;
  while (in.literal(' ')) {
  }
  std::int64_t offset = 0;
  if (!in.word("UTC") && !in.word("GMT") && !in.word("Z")) {
    const bool west = in.peek() == '-';
    if (!in.literal('+') && !in.literal('-')) return std::nullopt;
    int hours = 0;
    int minutes = 0;
    if (!in.number(hours, 2)) return std::nullopt;
    const bool colon = in.literal(':');
    if ((colon || !in.at_end()) && !in.number(minutes, 2)) return std::nullopt;
    if (hours > 23 || minutes > 59) return std::nullopt;
    offset = (west ? -1 : 1) * (std::int64_t(hours) * 3600 + std::int64_t(minutes) * 60);
  }
  if (!in.at_end()) return std::nullopt;
  const std::optional<std::int64_t> local = detail::checked_unix_from_civil(t);
  if (!local) return std::nullopt;
  return *local - offset;
}

}  // namespace millrace::text
