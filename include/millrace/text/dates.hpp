// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <millrace/text/ascii.hpp>

// The proleptic Gregorian calendar without the C library: gmtime and strptime bring time zones, locales and buffers of
// their own, and <chrono>'s calendar a fifth of a second of compile time.
namespace millrace::text {

/// A moment in UTC.
struct civil_time {
  int year = 1970;
  int month = 1;  // 1..12
  int day = 1;    // 1..31
  int hour = 0;
  int minute = 0;
  int second = 0;
};

/// The last one that has a year of four digits.
inline constexpr std::int64_t last_second_of_9999 = 253402300799;

namespace detail {

inline constexpr bool is_leap_year(int year) noexcept { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

inline constexpr int days_in_month(int year, int month) noexcept {
  constexpr int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month == 2 && is_leap_year(year) ? 29 : days[month - 1];
}

/// Days from 1970-01-01 to the first of January of `year` (1970 or later).
inline constexpr std::int64_t days_before_year(int year) noexcept {
  const std::int64_t y = year - 1;
  return y * 365 + y / 4 - y / 100 + y / 400 - 719162;
}

}  // namespace detail

/// The moment `seconds` after 1970-01-01 00:00 UTC: 0 to last_second_of_9999.
inline constexpr civil_time civil_from_unix(std::int64_t seconds) noexcept {
  civil_time t;
  const std::int64_t days = seconds / 86400;
  const auto rest = static_cast<int>(seconds % 86400);
  // 400 Gregorian years have 146097 days: the estimate is never above the year and at most one below it.
  t.year = 1970 + static_cast<int>((days * 400) / 146097);
  while (detail::days_before_year(t.year) > days) --t.year;
  while (detail::days_before_year(t.year + 1) <= days) ++t.year;
  auto day = static_cast<int>(days - detail::days_before_year(t.year));
  while (day >= detail::days_in_month(t.year, t.month)) day -= detail::days_in_month(t.year, t.month++);
  t.day = day + 1;
  t.hour = rest / 3600;
  t.minute = rest / 60 % 60;
  t.second = rest % 60;
  return t;
}

namespace detail {

/// Nothing for dates that do not exist and for years before 1970. A leap second counts as the second before it.
inline std::optional<std::int64_t> checked_unix_from_civil(const civil_time& t) noexcept {
  if (t.year < 1970 || t.year > 9999 || t.month < 1 || t.month > 12 || t.day < 1) return std::nullopt;
  if (t.day > days_in_month(t.year, t.month) || t.hour > 23 || t.minute > 59 || t.second > 60) return std::nullopt;
  std::int64_t days = days_before_year(t.year) + t.day - 1;
  for (int month = 1; month < t.month; ++month) days += days_in_month(t.year, month);
  return days * 86400 + t.hour * 3600 + t.minute * 60 + (t.second == 60 ? 59 : t.second);
}

inline constexpr std::string_view month_names = "JanFebMarAprMayJunJulAugSepOctNovDec";
inline constexpr std::string_view day_names = "MonTueWedThuFriSatSun";

/// Reads a date from left to right; every reader moves on only when it succeeds.
class date_cursor {
 public:
  explicit date_cursor(std::string_view text) noexcept : rest_(text) {}

  bool at_end() const noexcept { return rest_.empty(); }
  char peek() const noexcept { return rest_.empty() ? '\0' : rest_.front(); }
  void skip(std::size_t count) noexcept { rest_.remove_prefix(count); }

  bool literal(char c) noexcept {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool text(std::string_view expected) noexcept {
    if (rest_.substr(0, expected.size()) != expected) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }

  bool number(int& value, std::size_t digits) noexcept {
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

  bool skip_digits() noexcept {
    std::size_t count = 0;
    while (count < rest_.size() && is_digit(rest_[count])) ++count;
    rest_.remove_prefix(count);
    return count > 0;
  }

  /// One of the three-letter words in `names`.
  bool word_of(std::string_view names) noexcept {
    int ignored = 0;
    return word_of(names, ignored);
  }
  bool month(int& value) noexcept { return word_of(month_names, value); }

  bool time_of_day(civil_time& t) noexcept {
    return number(t.hour, 2) && literal(':') && number(t.minute, 2) && literal(':') && number(t.second, 2);
  }

 private:
  bool word_of(std::string_view names, int& position) noexcept {
    if (rest_.size() < 3) return false;
    for (std::size_t i = 0; i < names.size(); i += 3) {
      if (names.substr(i, 3) != rest_.substr(0, 3)) continue;
      position = static_cast<int>(i / 3) + 1;
      rest_.remove_prefix(3);
      return true;
    }
    return false;
  }

  std::string_view rest_;
};

}  // namespace detail

/// Unix seconds of an HTTP date, the `Date` header of a server: IMF-fixdate, and the two obsolete forms that every
/// recipient must accept (RFC 9110, section 5.6.7). Nothing when the text is none of them. `now` (unix seconds) decides
/// the century of the obsolete two-digit years.
inline std::optional<std::int64_t> parse_http_date(std::string_view text, std::int64_t now = 0) {
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

/// Unix seconds of `2013-01-10T21:45:09.000Z` or with an offset `+01:00`; fractions of a second are dropped (RFC 3339).
/// S3 writes it in listings, credential services in `Expiration`.
inline std::optional<std::int64_t> parse_iso8601(std::string_view text) {
  detail::date_cursor in(text);
  civil_time t;
  if (!in.number(t.year, 4) || !in.literal('-') || !in.number(t.month, 2) || !in.literal('-')) return std::nullopt;
  if (!in.number(t.day, 2) || !(in.literal('T') || in.literal('t') || in.literal(' '))) return std::nullopt;
  if (!in.time_of_day(t)) return std::nullopt;
  if (in.literal('.') && !in.skip_digits()) return std::nullopt;
  std::int64_t offset = 0;
  if (!in.literal('Z') && !in.literal('z')) {
    const bool west = in.peek() == '-';
    if (!in.literal('+') && !in.literal('-')) return std::nullopt;
    int hours = 0;
    int minutes = 0;
    if (!in.number(hours, 2)) return std::nullopt;
    in.literal(':');
    if (!in.number(minutes, 2) || hours > 23 || minutes > 59) return std::nullopt;
    offset = (west ? -1 : 1) * (std::int64_t(hours) * 3600 + std::int64_t(minutes) * 60);
  }
  if (!in.at_end()) return std::nullopt;
  const std::optional<std::int64_t> local = detail::checked_unix_from_civil(t);
  if (!local) return std::nullopt;
  return *local - offset;
}

}  // namespace millrace::text
