// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::text {

MILLRACE_INLINE std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = to_lower(c);
  return lower;
}

MILLRACE_INLINE void append_hex(std::string& out, std::span<const unsigned char> bytes) {
  const std::size_t begin = out.size();
  out.resize(begin + 2 * bytes.size());
  // Digits are computed, not looked up: that the compiler does for sixteen of them at once.
  const auto digit = [](unsigned value) { return static_cast<char>(value + '0' + (value > 9 ? 'a' - '0' - 10 : 0)); };
  char* to = out.data() + begin;
  for (const unsigned char byte : bytes) {
    *to++ = digit(byte >> 4);
    *to++ = digit(byte & 15u);
  }
}

}  // namespace millrace::text

namespace millrace::inline MILLRACE_ABI::text::detail {

MILLRACE_INLINE void append_uri_encoded(std::string& out, std::string_view text, bool keep_slash) {
  static constexpr char hex[] = "0123456789ABCDEF";
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_unreserved(c) || (keep_slash && c == '/')) continue;
    out.append(text, begin, i - begin);
    begin = i + 1;
    const auto u = static_cast<unsigned char>(c);
    const char escaped[3] = {'%', hex[u >> 4], hex[u & 15]};
    out.append(escaped, 3);
  }
  out.append(text, begin, text.size() - begin);
}

}  // namespace millrace::text::detail

namespace millrace::inline MILLRACE_ABI::text {

MILLRACE_INLINE std::string encode_path(std::string_view text) {
  std::string out;
  append_encoded_path(out, text);
  return out;
}

MILLRACE_INLINE std::string encode_query(std::string_view text) {
  std::string out;
  append_encoded_query(out, text);
  return out;
}

MILLRACE_INLINE void append_query_parameter(std::string& query, std::string_view name, std::string_view value) {
  if (!query.empty()) query += '&';
  append_encoded_query(query, name);
  query += '=';
  append_encoded_query(query, value);
}

MILLRACE_INLINE std::optional<std::string> uri_decode(std::string_view text, plus_sign plus) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (text.size() - i < 3) return std::nullopt;
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus == plus_sign::space) {
      c = ' ';
    }
    out += c;
  }
  return out;
}

MILLRACE_INLINE void append_utf8(std::string& out, std::uint32_t code) {
  const auto byte = [&out](std::uint32_t b) { out += static_cast<char>(b); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) {
    byte(0xc0 | (code >> 6));
  } else {
    if (code < 0x10000) {
      byte(0xe0 | (code >> 12));
    } else {
      byte(0xf0 | (code >> 18));
      byte(0x80 | ((code >> 12) & 0x3f));
    }
    byte(0x80 | ((code >> 6) & 0x3f));
  }
  byte(0x80 | (code & 0x3f));
}

MILLRACE_INLINE bool append_json_string(std::string& out, std::string_view text) {
  constexpr const char* digits = "0123456789abcdef";
  bool valid = true;
  out += '"';
  while (!text.empty()) {
    const utf8_character c = first_utf8(text);
    if (c.length == 0) {
      out += "\\ufffd";
      valid = false;
    } else if (c.code < 0x20) {
      out += "\\u00";
      out += digits[c.code >> 4];
      out += digits[c.code & 15];
    } else {
      if (c.code == '"' || c.code == '\\') out += '\\';
      out += text.substr(0, c.length);
    }
    text.remove_prefix(c.length == 0 ? 1 : c.length);
  }
  out += '"';
  return valid;
}

}  // namespace millrace::text
