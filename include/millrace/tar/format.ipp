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
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI::tar::detail {

MILLRACE_INLINE std::uint32_t byte_sum(const char* block) noexcept {
#if defined(__SSE2__)
  // PSADBW adds eight bytes to each of two lanes.
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
  std::uint64_t sums = 0;
  for (std::size_t i = 0; i < block_bytes; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, block + i, 8);
    sums += (word & low) + ((word >> 8) & low);
  }
  return static_cast<std::uint32_t>((sums & 0xffff) + ((sums >> 16) & 0xffff) + ((sums >> 32) & 0xffff) + (sums >> 48));
#endif
}

/// The GNU binary form: big-endian, first bit set, second bit the sign.
MILLRACE_INLINE number parse_base256(const char* field, std::size_t length) noexcept {
  const auto first = static_cast<unsigned char>(field[0]);
  if ((first & 0x40) != 0) return {0, "is negative"};
  std::uint64_t value = first & 0x3f;
  for (std::size_t i = 1; i < length; ++i) {
    if ((value >> 55) != 0) return {0, "is beyond 2^63"};
    value = value << 8 | static_cast<unsigned char>(field[i]);
  }
  return {value, nullptr};
}

/// Eight bytes as a number, the first one lowest.
MILLRACE_INLINE std::uint64_t eight_bytes(const char* at) noexcept {
  std::uint64_t x;
  std::memcpy(&x, at, 8);
  if constexpr (std::endian::native == std::endian::big) x = __builtin_bswap64(x);
  return x;
}

/// The value of eight octal digits, each in the low three bits of its byte, the first digit in the lowest byte.
MILLRACE_INLINE std::uint64_t join_octal(std::uint64_t x) noexcept {
  x = (x << 3 | x >> 8) & 0x003f003f003f003fu;  // pairs, then fours, then all
  x = (x << 6 | x >> 16) & 0x00000fff00000fffu;
  return (x << 12 | x >> 32) & 0xffffffu;
}

MILLRACE_INLINE MILLRACE_NOINLINE number parse_number(const char* field, std::size_t length) noexcept {
  if ((static_cast<unsigned char>(field[0]) & 0x80) != 0) return parse_base256(field, length);
  std::size_t i = 0;
  while (i < length && field[i] == ' ') ++i;
  if (i < length && field[i] == '\0') {
    while (i < length && (field[i] == '\0' || field[i] == ' ')) ++i;
    return {0, i == length ? nullptr : "has something after a NUL and no number before it"};
  }
  std::uint64_t value = 0;
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

MILLRACE_INLINE number size_field(const char* block) noexcept {
  constexpr std::size_t field = 124;
  // Nearly always: below 2 MiB, thus four zeros and seven digits, then a blank or a NUL.
  std::uint32_t zeros;
  std::memcpy(&zeros, block + field, 4);
  const std::uint64_t digits = eight_bytes(block + field + 4) ^ 0x0030303030303030u;
  if (MILLRACE_LIKELY(zeros == 0x30303030u && (digits & 0xdff8f8f8f8f8f8f8u) == 0)) {
    return {join_octal(digits << 8), nullptr};
  }
  return parse_number(block + field, 12);
}

/// A checksum field that is not written as usual, or wrong. Writers that summed signed bytes exist and are accepted.
MILLRACE_INLINE MILLRACE_NOINLINE bool odd_checksum_matches(const char* block, std::uint32_t expected) noexcept {
  constexpr std::size_t field = 148;
  const number stored = parse_number(block + field, 8);
  if (stored.problem != nullptr) return false;
  if (stored.value == expected) return true;
  std::int64_t as_signed = expected;
  for (std::size_t i = 0; i < block_bytes; ++i) {
    if ((i < field || i >= field + 8) && (static_cast<unsigned char>(block[i]) & 0x80) != 0) as_signed -= 256;
  }
  return as_signed >= 0 && stored.value == static_cast<std::uint64_t>(as_signed);
}

MILLRACE_INLINE bool checksum_matches(const char* block, std::uint32_t sum) noexcept {
  const std::uint64_t field = eight_bytes(block + 148);
  constexpr std::uint64_t low = 0x00ff00ff00ff00ffu;
  const std::uint64_t pairs = (field & low) + (field >> 8 & low);
  const std::uint32_t expected = sum + 8 * ' ' - static_cast<std::uint32_t>(pairs * 0x0001000100010001u >> 48);
  // Nearly always: six digits, then two blanks or NULs.
  const std::uint64_t digits = field ^ 0x0000303030303030u;
  if (MILLRACE_LIKELY((digits & 0xdfdff8f8f8f8f8f8u) == 0 && join_octal(digits << 16) == expected)) return true;
  return odd_checksum_matches(block, expected);
}

MILLRACE_INLINE std::string_view text(const char* field, std::size_t length) noexcept {
#if defined(__SSE2__)
  octets begin;  // most names are short, and a call of memchr() takes longer than this
  std::memcpy(&begin, field, 16);
  const octets is_nul = begin == octets{};
  if (const int nuls = __builtin_ia32_pmovmskb128(is_nul); nuls != 0) {
    return {field, static_cast<std::size_t>(__builtin_ctz(static_cast<unsigned>(nuls)))};
  }
#endif
  const void* nul = std::memchr(field, 0, length);
  return {field, nul == nullptr ? length : static_cast<std::size_t>(static_cast<const char*>(nul) - field)};
}

/// The directory part that ustar keeps apart from the name. Only POSIX headers have it; GNU headers keep times there.
MILLRACE_INLINE std::string_view prefix_field(const char* block) noexcept {
  if (block[345] == '\0') return {};
  // Schilling's star shortens it to make room for times, and marks that at the end of the block.
  if (has_posix_magic(block)) return text(block + 345, std::memcmp(block + 508, "tar", 4) == 0 ? 131 : 155);
  // Go before 1.8 wrote a prefix under GNU magic. It differs from a time in that it is not a number.
  if (has_gnu_magic(block) && parse_number(block + 345, 12).problem != nullptr) return text(block + 345, 155);
  return {};
}

MILLRACE_INLINE MILLRACE_NOINLINE void assign_prefixed_name(std::string& name, const char* block) {
  const std::string_view last = text(block, 100);
  const std::string_view prefix = prefix_field(block);
  name.assign(prefix.data(), prefix.size());
  if (!prefix.empty()) name += '/';
  name.append(last.data(), last.size());
}

MILLRACE_INLINE void assign_name(std::string& name, const char* block) {
  if (MILLRACE_UNLIKELY(block[345] != '\0')) return assign_prefixed_name(name, block);
  const std::string_view all = text(block, 100);
  if (MILLRACE_LIKELY(name.size() == all.size())) {  // as the names of an archive tend to be
    std::memcpy(name.data(), all.data(), all.size());
  } else {
    name.assign(all.data(), all.size());
  }
}

}  // namespace millrace::tar::detail

namespace millrace::inline MILLRACE_ABI::tar {

namespace detail {

/// There is no magic number: the usual properties, a dictionary as all writers make it, a size that is not known or
/// below 256 GiB, and the zero that every range coder begins with (the rule of liblzma's lzma_auto_decoder()).
MILLRACE_INLINE bool begins_as_lzma(std::string_view head) noexcept {
  if (head.size() < 14 || head[0] != '\x5d' || head[13] != 0) return false;
  const auto number = [head](std::size_t at, std::size_t bytes) {
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < bytes; ++i) n |= std::uint64_t(static_cast<unsigned char>(head[at + i])) << (8 * i);
    return n;
  };
  const std::uint64_t dictionary = number(1, 4);
  const std::uint64_t size = number(5, 8);
  const std::uint64_t highest = std::bit_floor(dictionary);
  return dictionary >= 4096 && (dictionary == highest || dictionary == highest + highest / 2) &&
         (size == UINT64_MAX || size >> 38 == 0);
}

}  // namespace detail

MILLRACE_INLINE format detect(std::string_view head) noexcept {
  using namespace std::string_view_literals;
  if (head.size() >= detail::block_bytes) {
    const std::uint32_t sum = detail::byte_sum(head.data());
    if (sum == 0 || detail::checksum_matches(head.data(), sum)) return format::tar;
  }
  const auto begins = [head](std::string_view magic) { return head.substr(0, magic.size()) == magic; };
  if (begins("\x1f\x8b"sv)) return format::gzip;
  if (begins("BZh"sv)) return format::bzip2;
  if (begins("\xfd\x37zXZ\0"sv)) return format::xz;
  if (begins("\x28\xb5\x2f\xfd"sv)) return format::zstd;
  if (begins("\x04\x22\x4d\x18"sv)) return format::lz4;
  // Either may begin with a skippable frame; those of zstd's own tools are zstd.
  if (head.size() >= 4 && (head[0] & '\xf0') == '\x50' && head.substr(1, 3) == "\x2a\x4d\x18"sv) return format::zstd;
  if (detail::begins_as_lzma(head)) return format::lzma;
  if (begins("PK\x03\x04"sv) || begins("PK\x05\x06"sv)) return format::zip;
  if (begins("070701"sv) || begins("070702"sv) || begins("070707"sv)) return format::cpio;
  if (begins("\xc7\x71"sv) || begins("\x71\xc7"sv)) return format::cpio;
  if (begins("7z\xbc\xaf\x27\x1c"sv)) return format::seven_zip;
  // A tar whose first header is damaged or cut: the reader says where.
  if (head.size() >= 262 && head.substr(257, 5) == "ustar"sv) return format::tar;
  return format::unknown;
}

}  // namespace millrace::tar
