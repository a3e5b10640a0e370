// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/config/detail/host_name.hpp>
#include <millrace/text/ascii.hpp>
#include <millrace/text/numbers.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE bool is_host_label(std::string_view text) noexcept {
  if (text.empty() || text.size() > 63 || text.front() == '-' || text.back() == '-') return false;
  for (char c : text) {
    if (!text::is_alphanumeric(c) && c != '-') return false;
  }
  return true;
}

MILLRACE_INLINE bool is_host_labels(std::string_view text) noexcept {
  while (true) {
    const std::size_t dot = text.find('.');
    if (!is_host_label(text.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

MILLRACE_INLINE bool is_ipv4(std::string_view text) noexcept {
  int numbers = 0;
  while (true) {
    const std::size_t dot = text.find('.');
    const std::string_view one = text.substr(0, dot);
    if (one.size() > 3 || !text::parse_decimal<int>(one, 0, 255)) return false;
    ++numbers;
    if (dot == std::string_view::npos) return numbers == 4;
    text.remove_prefix(dot + 1);
  }
}

MILLRACE_INLINE bool is_virtual_hostable_bucket(std::string_view bucket, bool allow_dots) noexcept {
  if (bucket.size() < 3 || bucket.size() > 63 || is_ipv4(bucket)) return false;
  for (char c : bucket) {
    if (c >= 'A' && c <= 'Z') return false;
  }
  return allow_dots ? is_host_labels(bucket) : is_host_label(bucket);
}

}  // namespace millrace::s3::detail
