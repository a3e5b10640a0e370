// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <millrace/version.hpp>

// The proleptic Gregorian calendar without the C library: gmtime and strptime bring time zones, locales and buffers of
// their own, and <chrono>'s calendar a fifth of a second of compile time.

namespace millrace::inline MILLRACE_ABI::text {

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
std::optional<std::int64_t> checked_unix_from_civil(const civil_time& t) noexcept;

inline constexpr std::string_view month_names = "JanFebMarAprMayJunJulAugSepOctNovDec";
inline constexpr std::string_view day_names = "MonTueWedThuFriSatSun";

/// Reads a date from left to right; every reader moves on only when it succeeds.
class date_cursor {
 public:
  explicit date_cursor(std::string_view text) noexcept : rest_(text) {}

  bool at_end() const noexcept { return rest_.empty(); }
  char peek() const noexcept { return rest_.empty() ? '\0' : rest_.front(); }
  void skip(std::size_t count) noexcept { rest_.remove_prefix(count); }

  bool literal(char c) noexcept;

  bool text(std::string_view expected) noexcept;
  /// Reads `expected`, whatever the case of the letters.
  bool word(std::string_view expected) noexcept;

  bool number(int& value, std::size_t digits) noexcept;

  bool skip_digits() noexcept;

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
  bool word_of(std::string_view names, int& position) noexcept;

  std::string_view rest_;
};

}  // namespace detail

/// Unix seconds of an HTTP date, the `Date` header of a server: IMF-fixdate, and the two obsolete forms that every
/// recipient must accept (RFC 9110, section 5.6.7). nullopt for other texts. `now` (unix seconds) decides
/// the century of the obsolete two-digit years.
std::optional<std::int64_t> parse_http_date(std::string_view text, std::int64_t now = 0);

/// Unix seconds of `2013-01-10T21:45:09.000Z` or with an offset `+01:00`; fractions of a second are dropped (RFC 3339).
/// S3 writes it in listings, credential services in `Expiration`. Other forms that botocore's dateutil reads are
/// accepted: `UTC` or `GMT` for the Z (the SSO cache of older AWS CLIs), `+0100`, `+01`, a blank before these, a comma
/// before the fraction, and `20130110T214509Z`. A time without a zone is refused.
std::optional<std::int64_t> parse_iso8601(std::string_view text);

}  // namespace millrace::text

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/text/dates.ipp>
#endif
