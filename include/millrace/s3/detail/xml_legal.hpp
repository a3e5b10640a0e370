// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/s3/uri_encode.hpp>

namespace millrace::s3::detail {

/// `document` with a question mark for every control character that XML 1.0 has no way to write, be it raw or a
/// character reference. Stores repeat keys in their answers as they are, and keys may hold any of them; where the key
/// is not what one wants to know, the rest of the answer is good.
inline std::string xml_legal(std::string_view document) {
  const auto legal = [](std::uint32_t c) { return c >= 0x20 || c == '\t' || c == '\n' || c == '\r'; };
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
          const int digit = hex_digit(document[d]);
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
    out += legal(static_cast<unsigned char>(c)) ? c : '?';
  }
  return out;
}

}  // namespace millrace::s3::detail
