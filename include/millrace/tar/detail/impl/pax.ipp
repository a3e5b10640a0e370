// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/pax.hpp>

namespace millrace::tar::detail {

MILLRACE_INLINE void pax_records::clear() noexcept {
  path.clear();
  sparse_name.clear();
  size.reset();
  sparse = false;
}

MILLRACE_INLINE std::optional<std::uint64_t> parse_decimal(std::string_view digits, std::size_t most_digits) noexcept {
  if (digits.empty() || digits.size() > most_digits) return std::nullopt;
  std::uint64_t value = 0;
  for (char c : digits) {
    const auto digit = static_cast<unsigned>(static_cast<unsigned char>(c)) - '0';
    if (digit > 9 || value > (UINT64_MAX - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

/// Applies one record to `out`. Keys that do not change where members begin and what they are called are not kept.
MILLRACE_INLINE const char* apply_pax_record(std::string_view key, std::string_view value, bool global,
                                             std::size_t max_name, pax_records& out) {
  if (key.empty()) return "a pax record has an empty key";
  const bool is_path = key == "path";
  if (is_path || key == "linkpath" || key == "uname" || key == "gname") {
    if (value.find('\0') != std::string_view::npos) return "a pax name contains a NUL byte";
  } else if (key.find('\0') != std::string_view::npos) {
    return "a pax key contains a NUL byte";
  }
  if (is_path || key == "linkpath") {
    if (value.size() > max_name) return "a name is longer than max_name_bytes";
    // A path for all members to come makes no sense and no reader agrees with another on it.
    if (is_path && !global) out.path.assign(value.data(), value.size());
  } else if (key == "size") {
    if (value.empty()) {
      out.size.reset();
      return nullptr;
    }
    const std::optional<std::uint64_t> size = parse_decimal(value, 64);
    if (!size || *size > INT64_MAX) return "a pax size is not a number below 2^63";
    if (global) return "a global pax header sets the size of every member";
    out.size = *size;
  } else if (key.substr(0, 11) == "GNU.sparse." || key == "SUN.holesdata") {
    out.sparse = true;
    if (key == "GNU.sparse.name") {
      if (value.size() > max_name) return "a name is longer than max_name_bytes";
      if (value.find('\0') != std::string_view::npos) return "a pax name contains a NUL byte";
      out.sparse_name.assign(value.data(), value.size());
    }
  }
  return nullptr;
}

MILLRACE_INLINE MILLRACE_NOINLINE pax_problem parse_pax(std::string_view text, bool global, std::size_t max_name,
                                                        pax_records& out) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    // Up to 20 digits (leading zeros are written by some): no search runs through a hostile header again and again.
    std::size_t blank = 0;
    std::uint64_t length = 0;
    for (; blank < 20 && blank < rest.size(); ++blank) {
      const auto digit = static_cast<unsigned>(static_cast<unsigned char>(rest[blank])) - '0';
      if (digit > 9 || (blank == 19 && length > (UINT64_MAX - digit) / 10)) break;
      length = length * 10 + digit;
    }
    if (blank == 0 || blank == rest.size() || rest[blank] != ' ') {
      return {at, "a pax record does not begin with its length"};
    }
    if (length > rest.size()) return {at, "a pax record is longer than its header"};
    if (length < blank + 3) return {at, "a pax record's length is too small"};
    const auto size = static_cast<std::size_t>(length);
    if (rest[size - 1] != '\n') return {at, "a pax record does not end in a line feed"};
    const std::string_view record = rest.substr(blank + 1, size - blank - 2);
    if (!is_time(record)) {
      const std::size_t equals = record.find('=');
      if (equals == std::string_view::npos) return {at, "a pax record has no '='"};
      const char* reason = apply_pax_record(record.substr(0, equals), record.substr(equals + 1), global, max_name, out);
      if (reason != nullptr) return {at, reason};
    }
    at += size;
  }
  return {};
}

}  // namespace millrace::tar::detail
