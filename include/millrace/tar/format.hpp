// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <millrace/tar/detail/header.hpp>

namespace millrace::tar {

/// What the first bytes of an object say it is.
enum class format : unsigned char {
  unknown,
  tar,   ///< v7, ustar, pax or GNU tar
  gzip,  ///< RFC 1952
  bzip2,
  xz,
  zstd,  ///< RFC 8878
  lz4,   ///< LZ4 frames
  zip,
  cpio,
  seven_zip,  ///< known, not read: its directory is at its end
};

/// "gzip", for messages.
inline const char* format_name(format f) noexcept {
  static const char* const names[] = {"unknown", "tar", "gzip", "bzip2", "xz", "zstd", "lz4", "zip", "cpio", "7z"};
  return names[static_cast<std::size_t>(f)];
}

/// Bytes of an object's beginning that detect() wants to see when the object has them.
inline constexpr std::size_t detect_bytes = detail::block_bytes;

/// Tells the format from an object's first bytes (all of them, when it has fewer than detect_bytes). Names and content
/// types are not asked: they lie. A block of zeros is the end of a tar archive without members.
format detect(std::string_view head) noexcept;

}  // namespace millrace::tar

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/impl/format.ipp>
#endif
