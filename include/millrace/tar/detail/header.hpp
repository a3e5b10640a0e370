// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>

namespace millrace::tar::detail {

/// \file
/// One 512-byte tar header block: checksum, numbers, name. POSIX.1-2017 pax ("ustar Interchange Format"), the GNU tar
/// manual ("Basic Tar Format") and what old archives are known to contain.

inline constexpr std::size_t block_bytes = 512;

/// Sum of the block's bytes, each as an unsigned number. 0 exactly for a block of zeros.
inline std::uint32_t byte_sum(const char* block) noexcept {
#if defined(__SSE2__)
  // PSADBW adds eight bytes to each of two lanes. By the builtin, since <emmintrin.h> takes long to compile.
  using octets = char __attribute__((vector_size(16)));
  using lanes = long long __attribute__((vector_size(16)));
  const octets zero = {};
  lanes a = {};
  lanes b = {};
  for (std::size_t i = 0; i < block_bytes; i += 32) {
    octets even, odd;
    std::memcpy(&even, block + i, 16);
    std::memcpy(&odd, block + i + 16, 16);
    a += __builtin_ia32_psadbw128(even, zero);
    b += __builtin_ia32_psadbw128(odd, zero);
  }
  a += b;
  return static_cast<std::uint32_t>(a[0] + a[1]);
#else
  // Four 16-bit lanes; each gathers 128 bytes, at most 32,640.
  constexpr std::uint64_t low = 0x00ff00ff00ff00ffu;
  std::uint64_t lanes = 0;
  for (std::size_t i = 0; i < block_bytes; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, block + i, 8);
    lanes += (word & low) + ((word >> 8) & low);
  }
  return static_cast<std::uint32_t>((lanes & 0xffff) + ((lanes >> 16) & 0xffff) + ((lanes >> 32) & 0xffff) +
                                    (lanes >> 48));
#endif
}

/// Asks for a header, and for what follows it when it is an extended one, from memory ahead of use.
inline void prefetch_header(const char* block) noexcept {
  for (std::size_t i = 0; i < block_bytes + 64; i += 64) __builtin_prefetch(block + i);
}

/// A number of a header field, or why there is none (a sentence that follows "the size field ").
struct number {
  std::uint64_t value = 0;
  const char* problem = nullptr;
};

/// The GNU binary form: big-endian, first bit set, second bit the sign.
inline number parse_base256(const char* field, std::size_t length) noexcept {
  const auto first = static_cast<unsigned char>(field[0]);
  if ((first & 0x40) != 0) return {0, "is negative"};
  std::uint64_t value = first & 0x3f;
  for (std::size_t i = 1; i < length; ++i) {
    if ((value >> 55) != 0) return {0, "is beyond 2^63"};
    value = value << 8 | static_cast<unsigned char>(field[i]);
  }
  return {value, nullptr};
}

/// Reads eight octal digits at once; false when they are not all digits, or on big-endian machines.
inline bool eight_octal_digits(const char* field, std::uint64_t& value) noexcept {
  if constexpr (std::endian::native != std::endian::little) return false;
  std::uint64_t x;
  std::memcpy(&x, field, 8);
  x ^= 0x3030303030303030u;
  if ((x & 0xf8f8f8f8f8f8f8f8u) != 0) return false;
  x = (x << 3 | x >> 8) & 0x003f003f003f003fu;  // pairs, then fours, then all; the first digit is the lowest byte
  x = (x << 6 | x >> 16) & 0x00000fff00000fffu;
  value = (x << 12 | x >> 32) & 0xffffffu;
  return true;
}

/// Octal digits with blanks or NULs before them and a blank, a NUL or nothing behind them; an empty field is 0. What
/// follows a NUL is not looked at: old writers left their buffers' contents there.
inline number parse_number(const char* field, std::size_t length) noexcept {
  if ((static_cast<unsigned char>(field[0]) & 0x80) != 0) return parse_base256(field, length);
  std::size_t i = 0;
  std::uint64_t value = 0;
  if (MILLRACE_LIKELY(length > 8 && eight_octal_digits(field, value))) {
    i = 8;
  } else {
    while (i < length && (field[i] == ' ' || field[i] == '\0')) ++i;
  }
  for (; i < length; ++i) {
    const auto digit = static_cast<unsigned>(static_cast<unsigned char>(field[i])) - '0';
    if (digit > 7) break;
    value = value << 3 | digit;  // 12 digits at most: 36 bits
  }
  for (; i < length && field[i] != '\0'; ++i) {
    if (field[i] != ' ') return {0, "is not an octal number"};
  }
  return {value, nullptr};
}

/// Whether the stored checksum is that of the block, whose bytes sum up to `sum`. The field itself counts as blanks;
/// writers that summed signed bytes exist and are accepted.
inline bool checksum_matches(const char* block, std::uint32_t sum) noexcept {
  constexpr std::size_t field = 148;
  const number stored = parse_number(block + field, 8);
  if (stored.problem != nullptr) return false;
  std::uint32_t expected = sum + 8 * ' ';
  for (std::size_t i = field; i < field + 8; ++i) expected -= static_cast<unsigned char>(block[i]);
  if (MILLRACE_LIKELY(stored.value == expected)) return true;
  std::int64_t as_signed = expected;
  for (std::size_t i = 0; i < block_bytes; ++i) {
    if ((i < field || i >= field + 8) && (static_cast<unsigned char>(block[i]) & 0x80) != 0) as_signed -= 256;
  }
  return as_signed >= 0 && stored.value == static_cast<std::uint64_t>(as_signed);
}

/// A field of text: all of it, or up to its first NUL.
inline std::string_view text(const char* field, std::size_t length) noexcept {
  const void* nul = std::memchr(field, 0, length);
  return {field, nul == nullptr ? length : static_cast<std::size_t>(static_cast<const char*>(nul) - field)};
}

inline number size_field(const char* block) noexcept { return parse_number(block + 124, 12); }
inline char type_field(const char* block) noexcept { return block[156]; }
inline bool has_posix_magic(const char* block) noexcept { return std::memcmp(block + 257, "ustar", 6) == 0; }
inline bool has_gnu_magic(const char* block) noexcept { return std::memcmp(block + 257, "ustar  ", 8) == 0; }

/// The directory part that ustar keeps apart from the name. Only POSIX headers have it; GNU headers keep times there.
inline std::string_view prefix_field(const char* block) noexcept {
  if (block[345] == '\0') return {};
  // Schilling's star shortens it to make room for times, and marks that at the end of the block.
  if (has_posix_magic(block)) return text(block + 345, std::memcmp(block + 508, "tar", 4) == 0 ? 131 : 155);
  // Go before 1.8 wrote a prefix under GNU magic. It is told from a time by not being a number.
  if (has_gnu_magic(block) && parse_number(block + 345, 12).problem != nullptr) return text(block + 345, 155);
  return {};
}

/// The member's name as this block alone has it.
inline void assign_name(std::string& name, const char* block) {
  const std::string_view last = text(block, 100);
  const std::string_view prefix = prefix_field(block);
  if (MILLRACE_LIKELY(prefix.empty())) {
    name.assign(last.data(), last.size());
    return;
  }
  name.assign(prefix.data(), prefix.size());
  name += '/';
  name.append(last.data(), last.size());
}

/// Types whose size field is not the length of a body, whatever it says: links, devices, directories, FIFOs.
inline bool is_header_only(char type) noexcept { return type >= '1' && type <= '6'; }

}  // namespace millrace::tar::detail
