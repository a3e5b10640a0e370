// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Tables of a reflected CRC of 32 or 64 bits, eight bytes at a time: row k holds the effect of a byte on the remainder
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

#if defined(__x86_64__)

/// x^n mod P, its bits reflected, in the upper bits of 64. `Polynomial` is reflected too.
template <class Word, Word Polynomial>
constexpr std::uint64_t crc_power(unsigned n) noexcept {
  Word r = static_cast<Word>(Word(1) << (8 * sizeof(Word) - 1));
  for (; n > 0; --n) r = (r & 1) != 0 ? (r >> 1) ^ Polynomial : r >> 1;
  return static_cast<std::uint64_t>(r) << (64 - 8 * sizeof(Word));
}

/// The CRC by carry-less multiplication, 64 bytes at a time (V. Gopal et al., "Fast CRC Computation for Generic
/// Polynomials Using PCLMULQDQ Instruction", Intel 2009): four blocks of 128 bits are carried along, each multiplied by
/// x^512 modulo the polynomial and added to the block that is 64 bytes further on. The last 16 bytes, which have the
/// remainder of all bytes so far, go through the tables with the rest of the bytes. The processor must have the
/// instruction, and `size` be 64 at least.
template <class Word, Word Polynomial>
__attribute__((target("pclmul,sse2"))) Word crc_folded(Word crc, const void* data, std::size_t size) noexcept {
  using lane = long long __attribute__((vector_size(16)));
  // A reflected product of 64 by 64 bits stands one bit too low in 128: hence the powers that are one less.
  constexpr auto by_64_bytes = [](unsigned half) { return crc_power<Word, Polynomial>(512 + 64 * half - 1); };
  constexpr auto by_16_bytes = [](unsigned half) { return crc_power<Word, Polynomial>(128 + 64 * half - 1); };
  constexpr lane far = {static_cast<long long>(by_64_bytes(1)), static_cast<long long>(by_64_bytes(0))};
  constexpr lane near = {static_cast<long long>(by_16_bytes(1)), static_cast<long long>(by_16_bytes(0))};

  const auto* p = static_cast<const unsigned char*>(data);
  lane x[4];
  std::memcpy(x, p, 64);
  x[0] ^= lane{static_cast<long long>(static_cast<std::uint64_t>(static_cast<Word>(~crc))), 0};
  for (p += 64, size -= 64; size >= 64; p += 64, size -= 64) {
    lane next[4];
    std::memcpy(next, p, 64);
    for (int i = 0; i < 4; ++i) {
      x[i] = __builtin_ia32_pclmulqdq128(x[i], far, 0x00) ^ __builtin_ia32_pclmulqdq128(x[i], far, 0x11) ^ next[i];
    }
  }
  for (int i = 1; i < 4; ++i) {
    x[i] ^= __builtin_ia32_pclmulqdq128(x[i - 1], near, 0x00) ^ __builtin_ia32_pclmulqdq128(x[i - 1], near, 0x11);
  }
  unsigned char left[16];
  std::memcpy(left, &x[3], 16);
  // The inversion at both ends is undone here: the first bytes have had it.
  const Word so_far = crc_of<Word, Polynomial>(static_cast<Word>(~Word(0)), left, 16);
  return crc_of<Word, Polynomial>(so_far, p, size);
}

/// Like crc_folded() with registers of 512 bits, 256 bytes at a time: a quarter of the instructions (Intel since Ice
/// Lake, AMD since Zen 4). `size` must be 256 at least. Memory a page ahead is prefetched: the processor's own
/// prefetching ends at each page, and leaves the instructions waiting for memory that the disk or the network has
/// filled. The four registers are joined in registers at the end: for a block of 4 KiB the end is a third of the time.
template <class Word, Word Polynomial>
__attribute__((target("vpclmulqdq,avx512f,pclmul"))) Word crc_folded_wide(Word crc, const void* data,
                                                                          std::size_t size) noexcept {
  using lane = long long __attribute__((vector_size(16)));
  using lanes = long long __attribute__((vector_size(64)));
  // Factors that carry 128 bits along by as many bytes.
  constexpr auto low = [](unsigned bytes) {
    return static_cast<long long>(crc_power<Word, Polynomial>(8 * bytes + 64 - 1));
  };
  constexpr auto high = [](unsigned bytes) {
    return static_cast<long long>(crc_power<Word, Polynomial>(8 * bytes - 1));
  };
  constexpr long long low_far = low(256), high_far = high(256), low_near = low(64), high_near = high(64);
  const lanes far = {low_far, high_far, low_far, high_far, low_far, high_far, low_far, high_far};
  const lanes near = {low_near, high_near, low_near, high_near, low_near, high_near, low_near, high_near};
  constexpr lane next_lane = {low(16), high(16)};
#if defined(__clang__)
#define MILLRACE_CARRIED(x, by) \
  (__builtin_ia32_pclmulqdq512(x, by, 0x00) ^ __builtin_ia32_pclmulqdq512(x, by, 0x11))
#else
#define MILLRACE_CARRIED(x, by) \
  (__builtin_ia32_vpclmulqdq_v8di(x, by, 0x00) ^ __builtin_ia32_vpclmulqdq_v8di(x, by, 0x11))
#endif
  const auto* p = static_cast<const unsigned char*>(data);
  lanes x[4];
  std::memcpy(x, p, 256);
  x[0] ^= lanes{static_cast<long long>(static_cast<std::uint64_t>(static_cast<Word>(~crc))), 0, 0, 0, 0, 0, 0, 0};
  for (p += 256, size -= 256; size >= 256; p += 256, size -= 256) {
    lanes next[4];
    for (int i = 0; i < 4; ++i) __builtin_prefetch(p + 4096 + 64 * i, 0, 2);  // may be beyond the end: it reads nothing
    std::memcpy(next, p, 256);
    for (int i = 0; i < 4; ++i) x[i] = MILLRACE_CARRIED(x[i], far) ^ next[i];
  }
  for (int i = 1; i < 4; ++i) x[i] ^= MILLRACE_CARRIED(x[i - 1], near);
  for (; size >= 64; p += 64, size -= 64) {
    lanes next;
    std::memcpy(&next, p, 64);
    x[3] = MILLRACE_CARRIED(x[3], near) ^ next;
  }
#undef MILLRACE_CARRIED
  lane y[4];
  std::memcpy(y, &x[3], 64);
  for (int i = 1; i < 4; ++i) {
    y[i] ^= __builtin_ia32_pclmulqdq128(y[i - 1], next_lane, 0x00) ^
            __builtin_ia32_pclmulqdq128(y[i - 1], next_lane, 0x11);
  }
  // These 16 bytes have the remainder of all bytes so far, the inversion included.
  unsigned char left[16];
  std::memcpy(left, &y[3], 16);
  const Word so_far = crc_of<Word, Polynomial>(static_cast<Word>(~Word(0)), left, 16);
  return crc_of<Word, Polynomial>(so_far, p, size);
}

#endif

/// The CRC of more bytes by the best instructions of the processor; see crc_of().
template <class Word, Word Polynomial>
Word fast_crc_of(Word crc, const void* data, std::size_t size) noexcept {
#if defined(__x86_64__)
  if (size >= 1024 && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f")) {
    return crc_folded_wide<Word, Polynomial>(crc, data, size);
  }
  if (size >= 64 && __builtin_cpu_supports("pclmul")) return crc_folded<Word, Polynomial>(crc, data, size);
#endif
  return crc_of<Word, Polynomial>(crc, data, size);
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// CRC-32 of zip, gzip and Ethernet (RFC 1952, 8) of `size` bytes that follow those whose CRC is `crc` (0: none).
inline std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) noexcept {
  return detail::fast_crc_of<std::uint32_t, 0xedb88320u>(crc, data, size);
}

/// CRC-32C (Castagnoli; RFC 3720, 12.1) of `size` bytes that follow those whose CRC is `crc` (0: none).
inline std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) noexcept {
  return detail::fast_crc_of<std::uint32_t, 0x82f63b78u>(crc, data, size);
}

/// CRC-64/NVME (NVM Express NVM Command Set Specification 1.0, 5.2.1.3.4) of `size` bytes that follow those whose CRC
/// is `crc` (0: none). S3 computes it by itself if an upload brings no checksum.
inline std::uint64_t crc64nvme(std::uint64_t crc, const void* data, std::size_t size) noexcept {
  return detail::fast_crc_of<std::uint64_t, 0x9a6c9329ac4bc9b5u>(crc, data, size);
}

}  // namespace millrace
