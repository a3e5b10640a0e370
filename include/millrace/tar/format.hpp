// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>

namespace millrace::inline MILLRACE_ABI::tar::detail {

/// One 512-byte tar header block: checksum, numbers, name. POSIX.1-2017 pax ("ustar Interchange Format"), the GNU tar
/// manual ("Basic Tar Format") and forms known from old archives.

inline constexpr std::size_t block_bytes = 512;

/// The number of zeros after `size` bytes, up to the next block.
inline std::uint64_t padding(std::uint64_t size) noexcept { return -size & (block_bytes - 1); }

#if defined(__SSE2__)
// The vectors of the SSE2 builtins. <emmintrin.h> takes long to compile.
using octets = char __attribute__((vector_size(16)));
using lanes = long long __attribute__((vector_size(16)));
#endif

/// Sum of the block's bytes, each as an unsigned number. 0 exactly for a block of zeros.
std::uint32_t byte_sum(const char* block) noexcept;

/// Prefetches a header; if it is an `extended` one, its payload and the header after it, too. Inlined by force: g++
/// considers a function that only prefetches to be without effect, and drops calls of it.
MILLRACE_ALWAYS_INLINE void prefetch_header(const char* block, bool extended) noexcept {
  for (std::size_t i = 0; i < block_bytes; i += 64) __builtin_prefetch(block + i);
  if (!extended) return;
  __builtin_prefetch(block + block_bytes);  // payloads are short
  for (std::size_t i = 2 * block_bytes; i < 3 * block_bytes; i += 64) __builtin_prefetch(block + i);
}

/// A number of a header field, or why there is none (a clause that follows "the size field ").
struct number {
  std::uint64_t value = 0;
  const char* problem = nullptr;
};

/// Octal digits with blanks before them and a blank, a NUL or nothing after them. Text that follows a NUL after digits
/// is ignored: old writers left their buffers' contents there. A field of blanks and NULs is 0; digits that come only
/// after a NUL are refused, as tools disagree on them.
number parse_number(const char* field, std::size_t length) noexcept;

/// Length of the body, or why there is none.
number size_field(const char* block) noexcept;

/// True if the stored checksum is that of the block, whose bytes sum up to `sum`. The field itself counts as blanks.
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

namespace millrace::inline MILLRACE_ABI::tar {

/// The kind of an object, by its first bytes.
enum class format : unsigned char {
  unknown,
  tar,   ///< v7, ustar, pax or GNU tar
  gzip,  ///< RFC 1952
  bzip2,
  xz,
  zstd,  ///< RFC 8878
  lz4,   ///< LZ4 frames
  lzma,  ///< written by `lzma` and `xz --format=lzma`; it has no checksum
  deflate,  ///< RFC 1950 or 1951: only a Content-Encoding or a name says so, detect() does not
  zip,
  cpio,
  seven_zip,  ///< known, not read: its directory is at its end
};

/// "gzip", for messages.
inline const char* format_name(format f) noexcept {
  static const char* const names[] = {"unknown", "tar",  "gzip",    "bzip2", "xz",   "zstd",
                                      "lz4",     "lzma", "deflate", "zip",   "cpio", "7z"};
  return names[static_cast<std::size_t>(f)];
}

/// Bytes of an object's beginning that detect() wants to see when the object has them.
inline constexpr std::size_t detect_bytes = detail::block_bytes;

namespace detail {
bool begins_as_lzma(std::string_view head) noexcept;
}

/// Detects the format from an object's first bytes (all of them, when it has fewer than detect_bytes). Names and
/// content types are not considered: they are unreliable. A block of zeros is the end of a tar archive without members.
format detect(std::string_view head) noexcept;

}  // namespace millrace::tar

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/format.ipp>
#endif
