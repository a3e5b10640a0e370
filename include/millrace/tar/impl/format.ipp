// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::tar {

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
  if (begins("PK\x03\x04"sv) || begins("PK\x05\x06"sv)) return format::zip;
  if (begins("070701"sv) || begins("070702"sv) || begins("070707"sv)) return format::cpio;
  if (begins("\xc7\x71"sv) || begins("\x71\xc7"sv)) return format::cpio;
  if (begins("7z\xbc\xaf\x27\x1c"sv)) return format::seven_zip;
  // A tar whose first header is damaged or cut: the reader says where.
  if (head.size() >= 262 && head.substr(257, 5) == "ustar"sv) return format::tar;
  return format::unknown;
}

}  // namespace millrace::tar
