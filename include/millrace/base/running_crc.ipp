// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/running_crc.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

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

/// The CRC of data with the CRC `first` followed by `size` bytes with the CRC `second` (M. Adler's
/// crc32_combine() of zlib): the first remainder is shifted by `size` bytes, that is multiplied by x^(8 * size).
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

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void running_crc::add(const void* data, std::size_t size) noexcept {
  if (kind_ == crc_kind::none) return;
  const auto word = static_cast<std::uint32_t>(value_);
  if (kind_ == crc_kind::crc32) value_ = crc32(word, data, size);
  if (kind_ == crc_kind::crc32c) value_ = crc32c(word, data, size);
  if (kind_ == crc_kind::crc64nvme) value_ = crc64nvme(value_, data, size);
  size_ += size;
}

MILLRACE_INLINE void running_crc::join(const running_crc& next) noexcept {
  const auto a = static_cast<std::uint32_t>(value_);
  const auto b = static_cast<std::uint32_t>(next.value_);
  if (kind_ == crc_kind::crc32) value_ = detail::crc_join<std::uint32_t, 0xedb88320u>(a, b, next.size_);
  if (kind_ == crc_kind::crc32c) value_ = detail::crc_join<std::uint32_t, 0x82f63b78u>(a, b, next.size_);
  if (kind_ == crc_kind::crc64nvme) {
    value_ = detail::crc_join<std::uint64_t, 0x9a6c9329ac4bc9b5u>(value_, next.value_, next.size_);
  }
  size_ += next.size_;
}

}  // namespace millrace
