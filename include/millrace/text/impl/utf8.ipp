// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/text/utf8.hpp>

namespace millrace::text {

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

}  // namespace millrace::text
