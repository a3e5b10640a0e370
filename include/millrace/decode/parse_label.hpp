// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A class number written as text ("cls" fields): decimal, surrounding blanks and line ends allowed, nothing else.
/// Throws decode_error.
inline std::int64_t parse_label(const bytes& text, const where& at = where()) {
  std::string_view digits = text.view();
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!digits.empty() && blank(digits.front())) digits.remove_prefix(1);
  while (!digits.empty() && blank(digits.back())) digits.remove_suffix(1);
  const std::size_t sign = !digits.empty() && digits.front() == '-' ? 1 : 0;
  std::int64_t value = 0;
  bool good = digits.size() > sign;
  for (const char c : digits.substr(sign)) {
    const std::int64_t digit = sign == 1 ? '0' - c : c - '0';
    good = good && c >= '0' && c <= '9' && !__builtin_mul_overflow(value, 10, &value) &&
           !__builtin_add_overflow(value, digit, &value);
  }
  if (!good) {
    throw decode_error("the label is not a number: \"" + std::string(digits.substr(0, 40)) + "\"", at);
  }
  return value;
}

}  // namespace millrace::inline MILLRACE_ABI
