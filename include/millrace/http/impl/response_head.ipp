// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/http/response_head.hpp>
#include <millrace/text/numbers.hpp>

namespace millrace::http {

MILLRACE_INLINE std::optional<content_range> content_range::parse(std::string_view text) noexcept {
  content_range r;
  if (text.substr(0, 6) != "bytes ") return std::nullopt;
  text.remove_prefix(6);
  if (!text.empty() && text[0] == '*') {
    text.remove_prefix(1);
  } else {
    if (!number(text, r.first) || !literal(text, '-') || !number(text, r.last) || r.first > r.last) return std::nullopt;
    r.satisfied = true;
  }
  if (!literal(text, '/')) return std::nullopt;
  if (text == "*") return r.satisfied ? std::optional<content_range>(r) : std::nullopt;
  std::uint64_t total = 0;
  if (!number(text, total) || !text.empty()) return std::nullopt;
  if (r.satisfied && r.last >= total) return std::nullopt;
  r.total = total;
  return r;
}

MILLRACE_INLINE bool content_range::number(std::string_view& text, std::uint64_t& value) noexcept {
  const std::optional<std::uint64_t> digits = text::take_decimal<std::uint64_t>(text);
  value = digits.value_or(0);
  return digits.has_value();
}

MILLRACE_INLINE bool content_range::literal(std::string_view& text, char c) noexcept {
  if (text.empty() || text[0] != c) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace millrace::http
