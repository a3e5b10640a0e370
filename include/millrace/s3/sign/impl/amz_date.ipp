// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/sign/amz_date.hpp>
#include <millrace/text/dates.hpp>

namespace millrace::s3 {

MILLRACE_INLINE amz_date::amz_date(std::int64_t unix_seconds) {
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

MILLRACE_INLINE char* amz_date::digits(char* out, int two) noexcept {
  out[0] = static_cast<char>('0' + two / 10);
  out[1] = static_cast<char>('0' + two % 10);
  return out + 2;
}

}  // namespace millrace::s3
