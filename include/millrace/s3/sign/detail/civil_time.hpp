// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

// The proleptic Gregorian calendar without the C library: gmtime and strptime bring time zones, locales and buffers of
// their own, and <chrono>'s calendar a fifth of a second of compile time.
namespace millrace::s3::detail {

/// A moment in UTC.
struct civil_time {
  int year = 1970;
  int month = 1;  // 1..12
  int day = 1;    // 1..31
  int hour = 0;
  int minute = 0;
  int second = 0;
};

inline constexpr std::int64_t last_second_of_9999 = 253402300799;

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

/// For seconds from 1970 to the end of 9999.
inline constexpr civil_time civil_from_unix(std::int64_t seconds) noexcept {
  civil_time t;
  const std::int64_t days = seconds / 86400;
  const auto rest = static_cast<int>(seconds % 86400);
  // 400 Gregorian years have 146097 days: the estimate is never above the year and at most one below it.
  t.year = 1970 + static_cast<int>((days * 400) / 146097);
  while (days_before_year(t.year) > days) --t.year;
  while (days_before_year(t.year + 1) <= days) ++t.year;
  auto day = static_cast<int>(days - days_before_year(t.year));
  while (day >= days_in_month(t.year, t.month)) day -= days_in_month(t.year, t.month++);
  t.day = day + 1;
  t.hour = rest / 3600;
  t.minute = rest / 60 % 60;
  t.second = rest % 60;
  return t;
}

/// Nothing for dates that do not exist and for years before 1970. A leap second counts as the second before it.
template <class = void>
std::optional<std::int64_t> checked_unix_from_civil(const civil_time& t) noexcept {
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
      if (rest_[i] < '0' || rest_[i] > '9') return false;
      read = read * 10 + (rest_[i] - '0');
    }
    value = read;
    rest_.remove_prefix(digits);
    return true;
  }

  bool skip_digits() noexcept {
    std::size_t count = 0;
    while (count < rest_.size() && rest_[count] >= '0' && rest_[count] <= '9') ++count;
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

}  // namespace millrace::s3::detail
