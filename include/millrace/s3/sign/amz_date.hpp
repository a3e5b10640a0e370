// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/text/dates.hpp>

namespace millrace::s3 {

/// A moment the way SigV4 writes it: `20130524T000000Z`, and its day `20130524`.
class amz_date {
 public:
  /// `unix_seconds` since 1970-01-01 00:00 UTC. Throws configuration_error outside the years 1970 to 9999.
  explicit amz_date(std::int64_t unix_seconds) {
    if (unix_seconds < 0 || unix_seconds > text::last_second_of_9999) {
      throw configuration_error("the clock of this machine is outside the years 1970 to 9999");
    }
    const text::civil_time t = text::civil_from_unix(unix_seconds);
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

}  // namespace millrace::s3
