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

/// CRC-32C (Castagnoli; RFC 3720, 12.1) of `size` bytes that follow those whose CRC is `crc` (0: none).
inline std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) noexcept {
  return detail::fast_crc_of<std::uint32_t, 0x82f63b78u>(crc, data, size);
}

/// CRC-64/NVME (NVM Express NVM Command Set Specification 1.0, 5.2.1.3.4) of `size` bytes that follow those whose CRC
/// is `crc` (0: none). What S3 computes by itself where an upload brings no checksum.
inline std::uint64_t crc64nvme(std::uint64_t crc, const void* data, std::size_t size) noexcept {
  return detail::fast_crc_of<std::uint64_t, 0x9a6c9329ac4bc9b5u>(crc, data, size);
}

}  // namespace millrace
