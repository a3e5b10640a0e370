// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
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
inline format detect(std::string_view head) noexcept {
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
  if (begins("PK\x03\x04"sv) || begins("PK\x05\x06"sv)) return format::zip;
  if (begins("070701"sv) || begins("070702"sv) || begins("070707"sv)) return format::cpio;
  if (begins("\xc7\x71"sv) || begins("\x71\xc7"sv)) return format::cpio;
  if (begins("7z\xbc\xaf\x27\x1c"sv)) return format::seven_zip;
  // A tar whose first header is damaged or cut: the reader says where.
  if (head.size() >= 262 && head.substr(257, 5) == "ustar"sv) return format::tar;
  return format::unknown;
}

}  // namespace millrace::tar
