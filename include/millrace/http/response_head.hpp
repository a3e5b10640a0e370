// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/http/headers.hpp>

namespace millrace::http {

/// A Content-Range of a 206 ("bytes 0-9/100") or a 416 ("bytes */100"); RFC 9110, 14.4.
struct content_range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::optional<std::uint64_t> total;
  bool satisfied = false;  ///< false for the "*" of a 416

  /// Strict: anything but the grammar, overflow, first > last or last >= total gives nullopt.
  static std::optional<content_range> parse(std::string_view text) noexcept;

  /// Decimal digits at the front of `text`, which loses them; false when there are none or they overflow.
  static bool number(std::string_view& text, std::uint64_t& value) noexcept;

 private:
  static bool literal(std::string_view& text, char c) noexcept;
};

/// Status and fields of an answer whose head arrived completely.
class response_head {
 public:
  int status = 0;
  headers fields;
  /// Length of the body from the one Content-Length field; nullopt for a chunked body.
  std::optional<std::uint64_t> length;
  /// Checked against the request when that had a range and the status is 206.
  std::optional<content_range> range;

  /// The ETag as sent, quotes included; empty when there is none.
  std::string etag() const {
    const std::string* value = fields.find("etag");
    return value == nullptr ? std::string() : *value;
  }
};

}  // namespace millrace::http

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/impl/response_head.ipp>
#endif
