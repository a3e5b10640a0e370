// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/bytes.hpp>
#include <millrace/base/error.hpp>

namespace millrace {

/// A class number written as text ("cls" fields): decimal, surrounding blanks and line ends allowed, nothing else.
/// Throws decode_error.
inline std::int64_t parse_label(const bytes& text, const where& at = where()) {
  std::string_view digits = text.view();
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!digits.empty() && blank(digits.front())) digits.remove_prefix(1);
  while (!digits.empty() && blank(digits.back())) digits.remove_suffix(1);
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (problem != std::errc() || end != digits.data() + digits.size() || digits.empty()) {
    throw decode_error("the label is not a number: \"" + std::string(digits.substr(0, 40)) + "\"", at);
  }
  return value;
}

}  // namespace millrace
