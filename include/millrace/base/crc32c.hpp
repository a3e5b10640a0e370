// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/detail/crc_fold.hpp>

namespace millrace {

/// CRC-32C (Castagnoli; RFC 3720, 12.1) of `size` bytes that follow those whose CRC is `crc` (0: none).
inline std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) noexcept {
  return detail::fast_crc_of<std::uint32_t, 0x82f63b78u>(crc, data, size);
}

}  // namespace millrace
