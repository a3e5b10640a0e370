// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/detail/crc_fold.hpp>

namespace millrace {

/// CRC-32 of zip, gzip and Ethernet (RFC 1952, 8) of `size` bytes that follow those whose CRC is `crc` (0: none).
inline std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) noexcept {
  return detail::fast_crc_of<std::uint32_t, 0xedb88320u>(crc, data, size);
}

}  // namespace millrace
