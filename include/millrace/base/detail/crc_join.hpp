// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace millrace::detail {

/// The product of two polynomials modulo P, all with their bits reflected: x^0 is the highest bit.
template <class Word, Word Polynomial>
Word crc_product(Word a, Word b) noexcept {
  Word r = 0;
  for (; a != 0; a = static_cast<Word>(a << 1)) {
    if ((a >> (8 * sizeof(Word) - 1)) != 0) r ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ Polynomial : b >> 1;
  }
  return r;
}

/// The CRC of what has the CRC `first` and, behind it, of `size` bytes that have the CRC `second` (M. Adler's
/// crc32_combine() of zlib): the first remainder is moved on by `size` bytes, that is multiplied by x^(8 * size).
template <class Word, Word Polynomial>
Word crc_join(Word first, Word second, std::uint64_t size) noexcept {
  Word power = static_cast<Word>(Word(1) << (8 * sizeof(Word) - 1 - 8));  // x^8
  for (; size != 0; size >>= 1) {
    if ((size & 1) != 0) first = crc_product<Word, Polynomial>(power, first);
    power = crc_product<Word, Polynomial>(power, power);
  }
  return first ^ second;
}

}  // namespace millrace::detail
