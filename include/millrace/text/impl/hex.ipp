// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/text/hex.hpp>

namespace millrace::text {

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
