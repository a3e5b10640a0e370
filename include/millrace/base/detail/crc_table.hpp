// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::detail {

/// Tables of a reflected CRC of 32 or 64 bits, eight bytes at a time: row k holds what a byte does to the remainder
/// that is k bytes further on (M. E. Kounavis, F. L. Berry, "Novel table lookup-based algorithms for high-performance
/// CRC generation", IEEE Transactions on Computers 57, 2008).
template <class Word, Word Polynomial>
struct crc_table {
  Word row[8][256] = {};

  crc_table() noexcept {
    for (unsigned i = 0; i < 256; ++i) {
      Word r = i;
      for (int bit = 0; bit < 8; ++bit) r = (r & 1) != 0 ? (r >> 1) ^ Polynomial : r >> 1;
      row[0][i] = r;
    }
    for (unsigned i = 0; i < 256; ++i) {
      for (int k = 1; k < 8; ++k) row[k][i] = (row[k - 1][i] >> 8) ^ row[0][row[k - 1][i] & 0xff];
    }
  }
};

/// The CRC of more bytes: `crc` is that of the bytes before them, 0 at the start. All bits are inverted at both ends,
/// as every CRC of S3 has it.
template <class Word, Word Polynomial>
Word crc_of(Word crc, const void* data, std::size_t size) noexcept {
  static const crc_table<Word, Polynomial> table;  // made at its first use: at compile time, every includer would pay
  const auto* p = static_cast<const unsigned char*>(data);
  Word r = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    Word next = 0;
    for (unsigned i = 0; i < 8; ++i) {
      unsigned byte = p[i];
      if (i < sizeof(Word)) byte ^= static_cast<unsigned>(r >> (8 * i)) & 0xff;
      next ^= table.row[7 - i][byte];
    }
    r = next;
  }
  for (; size > 0; --size, ++p) r = (r >> 8) ^ table.row[0][(r ^ *p) & 0xff];
  return ~r;
}

}  // namespace millrace::detail
