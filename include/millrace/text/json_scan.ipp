// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/text/json_scan.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::text {

MILLRACE_INLINE bool json_scan::document() noexcept {
  static constexpr std::string_view mark = "\xef\xbb\xbf";
  if (text_.substr(0, 2) == "\xff\xfe" || text_.substr(0, 2) == "\xfe\xff") {
    return fault("a byte order mark of UTF-16; JSON is UTF-8");
  }
  if (outer_ == 0 && text_.substr(0, mark.size()) == mark) at_ = mark.size();
  if (text_.substr(at_, mark.size()) == mark) return fault("a second byte order mark");
  skip_blanks();
  if (at_ == text_.size()) return fault("no document: the text is empty");
  if (!value()) return false;
  skip_blanks();
  return at_ == text_.size() || fault("extra data after the document");
}

MILLRACE_INLINE bool json_scan::value() noexcept {
  char open[deepest];  // closing characters of the open objects and arrays
  std::size_t depth = outer_;
  for (;;) {
    skip_blanks();
    const char c = peek();
    bool whole = true;  // the value that begins here, with its end
    if (c == '{' || c == '[') {
      if (depth == deepest) return fault("objects and arrays nested more than 1024 deep");
      const char end = c == '{' ? '}' : ']';
      ++at_;
      skip_blanks();
      if (peek() == end) {
        ++at_;
      } else {
        open[depth++] = end;
        if (c == '{' && !name()) return false;
        whole = false;
      }
    } else if (!(c == '"' ? string() : scalar())) {
      return false;
    }
    while (whole) {
      if (depth == outer_) return true;
      skip_blanks();
      const char end = open[depth - 1];
      if (peek() == end) {
        --depth;
        ++at_;
      } else if (peek() == ',') {
        ++at_;
        if (end == '}') {
          skip_blanks();
          if (!name()) return false;
        }
        whole = false;
      } else if (at_ == text_.size()) {
        return fault("the text ends inside an object or array");
      } else {
        return fault(end == '}' ? "no , or } after a member" : "no , or ] after an element");
      }
    }
  }
}

MILLRACE_INLINE bool json_scan::name() noexcept {
  if (at_ == text_.size()) return fault("the text ends inside an object or array");
  if (peek() != '"') return fault("no member's name in double quotes");
  if (!string()) return false;
  skip_blanks();
  if (peek() != ':') return fault("no : after a member's name");
  ++at_;
  return true;
}

MILLRACE_INLINE bool json_scan::scalar() noexcept {
  if (at_ == text_.size()) return fault("the text ends where a value should stand");
  const char c = peek();
  if ((c < '0' || c > '9')) {
    for (const std::string_view word : {"true", "false", "null", "NaN", "Infinity", "-Infinity"}) {
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return true;
      }
    }
  }
  return number();
}

MILLRACE_INLINE bool json_scan::digits() noexcept {
  const std::size_t before = at_;
  while (peek() >= '0' && peek() <= '9') ++at_;
  return at_ > before;
}

MILLRACE_INLINE bool json_scan::number() noexcept {
  const bool minus = peek() == '-';
  if (minus) ++at_;
  const std::size_t first = at_;
  if (!digits()) return fault(minus ? "no digit after a minus sign" : "no value");
  if (text_[first] == '0' && at_ > first + 1) {
    at_ = first;
    return fault("a number that begins with zeros");
  }
  if (peek() == '.') {
    ++at_;
    if (!digits()) return fault("no digit after a decimal point");
  }
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    if (!digits()) return fault("no digit in an exponent");
  }
  return true;
}

MILLRACE_INLINE void json_scan::skip_plain() noexcept {
  // Eight bytes at a time: the lowest byte of `found` that has its high bit is the first that ends them.
  constexpr std::uint64_t ones = 0x0101010101010101u;
  constexpr std::uint64_t high = 0x8080808080808080u;
  const auto zeros = [](std::uint64_t x) { return (x - ones) & ~x & high; };
  for (; at_ + 8 <= text_.size(); at_ += 8) {
    std::uint64_t x;
    std::memcpy(&x, text_.data() + at_, 8);
    std::uint64_t found = zeros(x ^ (ones * '"')) | zeros(x ^ (ones * '\\'));
    if (!trusted_) found |= ((x - ones * 0x20) | x) & high;
    if (found != 0) {
      if constexpr (std::endian::native == std::endian::little)
        at_ += static_cast<std::size_t>(std::countr_zero(found)) / 8;
      return;
    }
  }
}

MILLRACE_INLINE bool json_scan::string() noexcept {
  ++at_;
  for (;;) {
    skip_plain();
    for (;;) {
      if (at_ >= text_.size()) return fault("the text ends inside a string");
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c == '\\') {
        if (!escape()) return false;
        break;
      }
      if (c < 0x20) return fault("a control character in a string");
      if (c < 0x80 || trusted_) {
        ++at_;
        continue;
      }
      const std::size_t length = first_utf8(text_.substr(at_)).length;
      if (length == 0) return fault("bytes that are no UTF-8");
      at_ += length;
    }
  }
}

MILLRACE_INLINE bool json_scan::escape() noexcept {
  static constexpr std::string_view known = "\"\\/bfnrtu";
  const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
  if (c == '\0' || known.find(c) == std::string_view::npos) return fault("an escape that JSON does not know");
  if (c != 'u') {
    at_ += 2;
    return true;
  }
  for (std::size_t i = at_ + 2; i < at_ + 6; ++i) {
    if (i >= text_.size() || hex_digit(text_[i]) < 0) return fault("\\u without four hexadecimal digits");
  }
  at_ += 6;
  return true;
}

MILLRACE_INLINE std::optional<std::string> json_fault(std::string_view text) {
  json_scan scan(text);
  if (scan.document()) return std::nullopt;
  return scan.reason() + (" at byte " + std::to_string(scan.at())) + " of the text";
}

MILLRACE_INLINE std::string_view lone_surrogate(std::string_view raw) noexcept {
  const auto half = [&](std::size_t i) -> int {  // the code of an escape \uD8xx to \uDFxx at i; 0 if there is none
    if (raw.substr(i, 2) != "\\u" || i + 6 > raw.size()) return 0;
    int code = 0;
    for (std::size_t k = i + 2; k < i + 6; ++k) code = code * 16 + hex_digit(raw[k]);
    return code >= 0xd800 && code < 0xe000 ? code : 0;
  };
  for (std::size_t i = raw.find('\\'); i < raw.size(); i = raw.find('\\', i)) {
    const int first = half(i);
    if (first == 0) {
      i += 2;
    } else if (first < 0xdc00 && half(i + 6) >= 0xdc00) {
      i += 12;
    } else {
      return raw.substr(i, 6);
    }
  }
  return {};
}

MILLRACE_INLINE const char* json_kind(std::string_view text) noexcept {
  const std::size_t at = text.find_first_not_of("\xef\xbb\xbf \t\r\n");
  switch (at == std::string_view::npos ? '\0' : text[at]) {
    case '{':
      return "an object";
    case '[':
      return "an array";
    case '"':
      return "a string";
    case 't':
    case 'f':
      return "a boolean";
    case 'n':
      return "null";
    default:
      return "a number";
  }
}

}  // namespace millrace::text
