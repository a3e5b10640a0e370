// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <millrace/base/error.hpp>

namespace millrace::s3 {

/// A moment the way SigV4 writes it: `20130524T000000Z`, and its day `20130524`.
class amz_date {
 public:
  /// `unix_seconds` since 1970-01-01 00:00 UTC. Throws configuration_error outside the years 1970 to 9999.
  explicit amz_date(std::int64_t unix_seconds);

  /// Valid as long as this object.
  std::string_view timestamp() const noexcept { return {text_, sizeof text_}; }
  std::string_view day() const noexcept { return timestamp().substr(0, 8); }

 private:
  static char* digits(char* out, int two) noexcept;

  char text_[16];
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/sign/impl/amz_date.ipp>
#endif
