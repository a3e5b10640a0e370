// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace::tar::detail {

/// tables[k][b]: the remainder of byte b followed by k zero bytes, bits reflected.
inline constexpr auto crc32_tables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> t{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t x = b;
    for (int bit = 0; bit < 8; ++bit) x = x >> 1 ^ (0xedb88320u & (0 - (x & 1)));
    t[0][b] = x;
  }
  for (std::size_t k = 1; k < t.size(); ++k) {
    for (std::size_t b = 0; b < 256; ++b) t[k][b] = t[k - 1][b] >> 8 ^ t[0][t[k - 1][b] & 255];
  }
  return t;
}();

/// Continues the CRC-32 of RFC 1952 (start with 0) over `size` more bytes, eight at a time.
inline std::uint32_t crc32(std::uint32_t crc, const char* data, std::size_t size) noexcept {
  const auto* p = reinterpret_cast<const unsigned char*>(data);
  const auto& t = crc32_tables;
  crc = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    crc ^= p[0] | std::uint32_t(p[1]) << 8 | std::uint32_t(p[2]) << 16 | std::uint32_t(p[3]) << 24;
    crc = t[7][crc & 255] ^ t[6][crc >> 8 & 255] ^ t[5][crc >> 16 & 255] ^ t[4][crc >> 24] ^ t[3][p[4]] ^ t[2][p[5]] ^
          t[1][p[6]] ^ t[0][p[7]];
  }
  for (; size != 0; --size, ++p) crc = crc >> 8 ^ t[0][(crc ^ *p) & 255];
  return ~crc;
}

}  // namespace millrace::tar::detail
