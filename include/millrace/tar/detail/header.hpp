// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// Zeros behind `size` bytes, up to the next block.
inline std::uint64_t padding(std::uint64_t size) noexcept { return -size & (block_bytes - 1); }

#if defined(__SSE2__)
// What the SSE2 builtins take. <emmintrin.h> takes long to compile.
using octets = char __attribute__((vector_size(16)));
using lanes = long long __attribute__((vector_size(16)));
#endif

/// Sum of the block's bytes, each as an unsigned number. 0 exactly for a block of zeros.
std::uint32_t byte_sum(const char* block) noexcept;

/// Asks for a header from memory ahead of use; if it is an `extended` one, for its payload and the header behind it,
/// too. Inlined by force: g++ takes a function that only prefetches for one without effect, and drops calls of it.
MILLRACE_ALWAYS_INLINE void prefetch_header(const char* block, bool extended) noexcept {
  for (std::size_t i = 0; i < block_bytes; i += 64) __builtin_prefetch(block + i);
  if (!extended) return;
  __builtin_prefetch(block + block_bytes);  // payloads are short
  for (std::size_t i = 2 * block_bytes; i < 3 * block_bytes; i += 64) __builtin_prefetch(block + i);
}

/// A number of a header field, or why there is none (a sentence that follows "the size field ").
struct number {
  std::uint64_t value = 0;
  const char* problem = nullptr;
};

/// Octal digits with blanks before them and a blank, a NUL or nothing behind them. What follows a NUL behind digits is
/// not looked at: old writers left their buffers' contents there. A field of blanks and NULs is 0; digits behind a NUL
/// are refused, as tools disagree on them.
number parse_number(const char* field, std::size_t length) noexcept;

/// Length of the body, or why there is none.
number size_field(const char* block) noexcept;

/// Whether the stored checksum is that of the block, whose bytes sum up to `sum`. The field itself counts as blanks.
bool checksum_matches(const char* block, std::uint32_t sum) noexcept;

/// A field of text of at least 16 bytes: all of it, or up to its first NUL.
std::string_view text(const char* field, std::size_t length) noexcept;

inline char type_field(const char* block) noexcept { return block[156]; }
inline bool has_posix_magic(const char* block) noexcept { return std::memcmp(block + 257, "ustar", 6) == 0; }
inline bool has_gnu_magic(const char* block) noexcept { return std::memcmp(block + 257, "ustar  ", 8) == 0; }

/// The member's name as this block alone has it.
void assign_name(std::string& name, const char* block);

/// Types whose size field is not the length of a body, whatever it says: links, devices, directories, FIFOs.
inline bool is_header_only(char type) noexcept { return type >= '1' && type <= '6'; }

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/impl/header.ipp>
#endif
