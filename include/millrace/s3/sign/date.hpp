// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/s3/sign/detail/civil_time.hpp>

namespace millrace::s3 {

/// A moment the way SigV4 writes it: `20130524T000000Z`, and its day `20130524`.
class amz_date {
 public:
  /// `unix_seconds` since 1970-01-01 00:00 UTC. Throws configuration_error outside the years 1970 to 9999.
  explicit amz_date(std::int64_t unix_seconds) {
    if (unix_seconds < 0 || unix_seconds > detail::last_second_of_9999) {
      throw configuration_error("the clock of this machine is outside the years 1970 to 9999");
    }
    const detail::civil_time t = detail::civil_from_unix(unix_seconds);
    char* out = text_;
    out = digits(out, t.year / 100);
    out = digits(out, t.year % 100);
    out = digits(out, t.month);
    out = digits(out, t.day);
    *out++ = 'T';
    out = digits(out, t.hour);
    out = digits(out, t.minute);
    out = digits(out, t.second);
    *out = 'Z';
  }

  /// Valid as long as this object.
  std::string_view timestamp() const noexcept { return {text_, sizeof text_}; }
  std::string_view day() const noexcept { return timestamp().substr(0, 8); }

 private:
  static char* digits(char* out, int two) noexcept {
    out[0] = static_cast<char>('0' + two / 10);
    out[1] = static_cast<char>('0' + two % 10);
    return out + 2;
  }

  char text_[16];
};

/// Unix seconds of an HTTP date, the `Date` header of a server: IMF-fixdate, and the two obsolete forms that every
/// recipient must accept (RFC 9110, section 5.6.7). Nothing when the text is none of them. `now` (unix seconds) decides
/// the century of the obsolete two-digit years.
template <class = void>
std::optional<std::int64_t> parse_http_date(std::string_view text, std::int64_t now = 0) {
  detail::date_cursor in(text);
  detail::civil_time t;
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
    const int this_year = detail::civil_from_unix(now).year;
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
template <class = void>
std::optional<std::int64_t> parse_iso8601(std::string_view text) {
  detail::date_cursor in(text);
  detail::civil_time t;
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

}  // namespace millrace::s3
