// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/text/hex.hpp>
#include <millrace/text/utf8.hpp>


namespace millrace::s3::detail {

/// Bytes of the character that begins at `text[0]`, one above 0x7f; 0 when it is no UTF-8 or none that XML 1.0 allows.
inline std::size_t xml_character(std::string_view text) noexcept {
  const text::utf8_character c = text::first_utf8(text);
  return c.code == 0xfffe || c.code == 0xffff ? 0 : c.length;
}

/// `document` with a question mark for every character that XML 1.0 has no way to write, be it raw or a character
/// reference, and for every byte that is not UTF-8. Stores repeat keys in their answers as they are, and keys may hold
/// any of them; where the key is not what one wants to know, the rest of the answer is good.
template <class = void>
std::string xml_legal(std::string_view document) {
  const auto legal = [](std::uint32_t c) {
    const bool control = c < 0x20 && c != '\t' && c != '\n' && c != '\r';
    return !control && (c < 0xd800 || c > 0xdfff) && c != 0xfffe && c != 0xffff;
  };
  std::string out;
  out.reserve(document.size());
  for (std::size_t i = 0; i < document.size(); ++i) {
    const char c = document[i];
    if (c == '&' && document.substr(i, 2) == "&#") {
      const std::size_t end = document.find(';', i);
      if (end != std::string_view::npos && end - i <= 10) {
        const bool hexadecimal = document[i + 2] == 'x';
        std::uint32_t value = 0;
        bool number = end > i + (hexadecimal ? 3u : 2u);
        for (std::size_t d = i + (hexadecimal ? 3 : 2); d < end; ++d) {
          const int digit = text::hex_digit(document[d]);
          number = number && digit >= 0 && (hexadecimal || digit < 10);
          value = value * (hexadecimal ? 16 : 10) + static_cast<std::uint32_t>(digit);
        }
        if (number && !legal(value)) {
          out += '?';
          i = end;
          continue;
        }
      }
    }
    if (static_cast<unsigned char>(c) >= 0x80) {
      const std::size_t n = xml_character(document.substr(i));
      if (n == 0) {
        out += '?';
      } else {
        out += document.substr(i, n);
        i += n - 1;
      }
      continue;
    }
    out += legal(static_cast<unsigned char>(c)) ? c : '?';
  }
  return out;
}

}  // namespace millrace::s3::detail
