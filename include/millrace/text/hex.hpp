// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace millrace::text {

/// The value of a hexadecimal digit of either case, or -1.
inline constexpr int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/// Appends lower-case hexadecimal, two digits a byte.
void append_hex(std::string& out, std::span<const unsigned char> bytes);

}  // namespace millrace::text

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/text/impl/hex.ipp>
#endif
