// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/detail/crc_fold.hpp>

namespace millrace {

/// CRC-64/NVME (NVM Express NVM Command Set Specification 1.0, 5.2.1.3.4) of `size` bytes that follow those whose CRC
/// is `crc` (0: none). What S3 computes by itself where an upload brings no checksum.
inline std::uint64_t crc64nvme(std::uint64_t crc, const void* data, std::size_t size) noexcept {
  return detail::fast_crc_of<std::uint64_t, 0x9a6c9329ac4bc9b5u>(crc, data, size);
}

}  // namespace millrace
