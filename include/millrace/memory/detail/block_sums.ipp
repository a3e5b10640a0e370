// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/memory/detail/block_sums.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The effect of a following block on a CRC-32C, byte by byte of the CRC: it is multiplied by a power of x.
class block_shift {
 public:
  block_shift() noexcept {
    const char zeros[block_sums::block] = {};
    for (unsigned bit = 0; bit < 32; ++bit) {
      // Zeros after a remainder, without the inversion at both ends.
      const std::uint32_t one = ~crc32c(~(std::uint32_t(1) << bit), zeros, sizeof zeros);
      std::uint32_t* const row = rows_[bit / 8];
      const unsigned low = 1U << bit % 8;
      for (unsigned i = 0; i < low; ++i) row[low + i] = row[i] ^ one;
    }
  }
  std::uint32_t operator()(std::uint32_t crc) const noexcept {
    return rows_[0][crc & 0xff] ^ rows_[1][crc >> 8 & 0xff] ^ rows_[2][crc >> 16 & 0xff] ^ rows_[3][crc >> 24];
  }

 private:
  std::uint32_t rows_[4][256] = {};
};

MILLRACE_INLINE void block_sums::add(std::size_t at, const char* data, std::size_t size) noexcept {
  if (at != filled_) filled_ = 0;
  if (at != filled_ || sums_ == nullptr) return;
  while (size > 0) {
    std::uint32_t& sum = sums_[filled_ / block];
    const std::size_t before = filled_ % block;
    const std::size_t part = std::min(size, block - before);
    sum = crc32c(before == 0 ? 0 : sum, data, part);
    filled_ += part;
    data += part;
    size -= part;
  }
}

MILLRACE_INLINE void block_sums::add(std::size_t at, std::uint32_t crc, std::size_t size) noexcept {
  if (at != filled_) filled_ = 0;
  if (at != filled_ || at % block != 0 || sums_ == nullptr) return;
  sums_[at / block] = crc;
  filled_ = at + size;
}

MILLRACE_INLINE std::uint32_t block_sums::crc32c_of(const char* memory, std::size_t begin,
                                                    std::size_t end) const noexcept {
  static const block_shift over_block;
  const std::size_t first = (begin + block - 1) / block;
  const std::size_t last = std::min(end, filled_) / block;
  if (first >= last) return crc32c(0, memory + begin, end - begin);
  std::uint32_t crc = crc32c(0, memory + begin, first * block - begin);
  for (std::size_t i = first; i < last; ++i) crc = over_block(crc) ^ sums_[i];
  return crc32c(crc, memory + last * block, end - last * block);
}

}  // namespace millrace::detail
