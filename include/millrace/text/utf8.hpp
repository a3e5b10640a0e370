// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/detail/utf8.hpp>

namespace millrace::text {

/// Appends the UTF-8 of a code point up to U+10FFFF that is no surrogate (RFC 3629).
inline void append_utf8(std::string& out, std::uint32_t code) {
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

// Reading stands in base/, whose errors escape what they quote.
using millrace::detail::first_utf8;
using millrace::detail::utf8_character;

}  // namespace millrace::text
