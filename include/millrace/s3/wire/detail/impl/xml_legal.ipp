// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/wire/detail/xml_legal.hpp>
#include <millrace/text/hex.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE std::string xml_legal(std::string_view document) {
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
