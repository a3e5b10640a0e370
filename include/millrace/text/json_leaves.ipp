// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/text/json_leaves.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::text {

MILLRACE_INLINE std::optional<json_leaves> json_leaves::parse(std::string_view text, arrays items) {
  json_leaves out;
  out.rest_ = text;
  out.items_ = items;
  out.paths_left_ = 64 * text.size() + (std::size_t(1) << 20);
  std::string path;
  out.skip_blanks();
  if (!out.value(path, 0, true)) return std::nullopt;
  out.skip_blanks();
  if (!out.rest_.empty()) return std::nullopt;
  return out;
}

MILLRACE_INLINE std::optional<std::string_view> json_leaves::find(std::string_view path) const noexcept {
  for (std::size_t i = leaves_.size(); i > 0; --i) {
    if (leaves_[i - 1].first == path) return std::string_view(leaves_[i - 1].second);
  }
  return std::nullopt;
}

MILLRACE_INLINE std::optional<std::int64_t> json_leaves::find_number(std::string_view path) const noexcept {
  const std::optional<std::string_view> text = find(path);
  if (!text) return std::nullopt;
  return parse_decimal<std::int64_t>(*text);
}

MILLRACE_INLINE bool json_leaves::take(char c) noexcept {
  if (rest_.empty() || rest_.front() != c) return false;
  rest_.remove_prefix(1);
  return true;
}

MILLRACE_INLINE bool json_leaves::value(std::string& path, int depth, bool keep) {
  if (rest_.empty() || depth > deepest) return false;
  switch (rest_.front()) {
    case '{':
      return object(path, depth, keep);
    case '[':
      return array(path, depth, keep && items_ == arrays::kept);
    case '"': {
      std::string text;
      const bool whole = string(text);
      if (whole && keep) return keep_leaf(path, std::move(text));
      millrace::detail::wipe(text);
      return whole;
    }
    case 't':
      return word("true");
    case 'f':
      return word("false");
    case 'n':
      return word("null");
    default:
      return number(path, keep);
  }
}

MILLRACE_INLINE bool json_leaves::keep_leaf(const std::string& path, std::string text) {
  if (path.size() > paths_left_) {
    millrace::detail::wipe(text);
    return false;
  }
  paths_left_ -= path.size();
  leaves_.emplace_back(path, std::move(text));
  return true;
}

MILLRACE_INLINE bool json_leaves::object(std::string& path, int depth, bool keep) {
  take('{');
  skip_blanks();
  if (take('}')) return true;
  for (;;) {
    std::string name;
    skip_blanks();
    if (!string(name)) return false;
    skip_blanks();
    if (!take(':')) return false;
    skip_blanks();
    const std::size_t length = path.size();
    if (!path.empty()) path += '/';
    path += name;
    if (!value(path, depth + 1, keep)) return false;
    path.resize(length);
    skip_blanks();
    if (take('}')) return true;
    if (!take(',')) return false;
  }
}

MILLRACE_INLINE bool json_leaves::array(std::string& path, int depth, bool keep) {
  take('[');
  skip_blanks();
  if (take(']')) return true;
  const std::size_t length = path.size();
  for (std::size_t i = 0;; ++i) {
    skip_blanks();
    if (keep) path += (length == 0 ? "" : "/") + std::to_string(i);
    if (!value(path, depth + 1, keep)) return false;
    path.resize(length);
    skip_blanks();
    if (take(']')) return true;
    if (!take(',')) return false;
  }
}

MILLRACE_INLINE bool json_leaves::word(std::string_view text) noexcept {
  if (rest_.substr(0, text.size()) != text) return false;
  rest_.remove_prefix(text.size());
  return true;
}

MILLRACE_INLINE bool json_leaves::digits(std::size_t& n) const noexcept {
  const std::size_t before = n;
  while (n < rest_.size() && rest_[n] >= '0' && rest_[n] <= '9') ++n;
  return n > before;
}

MILLRACE_INLINE bool json_leaves::number(const std::string& path, bool keep) {
  std::size_t n = rest_.front() == '-' ? 1 : 0;
  const std::size_t first = n;
  if (!digits(n)) return false;
  if (rest_[first] == '0' && n > first + 1) return false;
  if (n < rest_.size() && rest_[n] == '.' && !digits(++n)) return false;
  if (n < rest_.size() && (rest_[n] == 'e' || rest_[n] == 'E')) {
    ++n;
    if (n < rest_.size() && (rest_[n] == '+' || rest_[n] == '-')) ++n;
    if (!digits(n)) return false;
  }
  const std::string_view text = rest_.substr(0, n);
  rest_.remove_prefix(n);
  return !keep || keep_leaf(path, std::string(text));
}

MILLRACE_INLINE bool json_leaves::string(std::string& out) {
  if (!take('"')) return false;
  std::size_t length = 0;  // at most, escapes only make it shorter
  while (length < rest_.size() && rest_[length] != '"') length += rest_[length] == '\\' ? 2U : 1U;
  out.reserve(length);  // text that grew would leave its beginnings in freed memory
  while (!rest_.empty()) {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    if (c == '"') return true;
    if (static_cast<unsigned char>(c) < 0x20) return false;
    if (c != '\\') {
      out += c;
    } else if (!escape(out)) {
      return false;
    }
  }
  return false;
}

MILLRACE_INLINE bool json_leaves::escape(std::string& out) {
  if (rest_.empty()) return false;
  const char c = rest_.front();
  rest_.remove_prefix(1);
  static constexpr std::string_view names = "\"\\/bfnrt";
  static constexpr std::string_view meant = "\"\\/\b\f\n\r\t";
  const std::size_t at = names.find(c);
  if (at != std::string_view::npos) {
    out += meant[at];
    return true;
  }
  std::uint32_t code = 0;
  if (c != 'u' || !hex4(code)) return false;
  if (code >= 0xdc00 && code < 0xe000) return false;  // the second half of a pair, alone
  if (code >= 0xd800 && code < 0xdc00) {
    std::uint32_t low = 0;
    if (!take('\\') || !take('u') || !hex4(low) || low < 0xdc00 || low >= 0xe000) return false;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  append_utf8(out, code);
  return true;
}

MILLRACE_INLINE bool json_leaves::hex4(std::uint32_t& code) noexcept {
  if (rest_.size() < 4) return false;
  code = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = rest_[static_cast<std::size_t>(i)];
    const int digit = hex_digit(c);
    if (digit < 0) return false;
    code = code * 16 + static_cast<std::uint32_t>(digit);
  }
  rest_.remove_prefix(4);
  return true;
}

}  // namespace millrace::text
