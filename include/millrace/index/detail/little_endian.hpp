// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Appends the lowest `bytes` bytes of a number, the least significant first.
inline void append_le(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

/// Reads them; `at + bytes` must not be beyond the text.
inline std::uint64_t read_le(std::string_view text, std::size_t at, int bytes) noexcept {
  std::uint64_t value = 0;
  if (std::endian::native == std::endian::little && at + 8 <= text.size()) {
    std::memcpy(&value, text.data() + at, 8);
    return value & (~std::uint64_t{0} >> (64 - 8 * bytes));
  }
  for (int i = 0; i < bytes; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(text[at + static_cast<std::size_t>(i)])} << (8 * i);
  }
  return value;
}

}  // namespace millrace::detail
