// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <millrace/base/detail/crc_table.hpp>

namespace millrace {

namespace detail {

/// Of any processor.
inline std::uint32_t crc32c_portable(std::uint32_t crc, const void* data, std::size_t size) noexcept {
  return crc_of<std::uint32_t, 0x82f63b78u>(crc, data, size);
}

#if defined(__x86_64__)
/// By the instruction of SSE 4.2; the processor must have it.
__attribute__((target("sse4.2"))) inline std::uint32_t crc32c_sse42(std::uint32_t crc, const void* data,
                                                                    std::size_t size) noexcept {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t r = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    r = __builtin_ia32_crc32di(r, word);
  }
  auto last = static_cast<std::uint32_t>(r);
  for (; size > 0; --size, ++p) last = __builtin_ia32_crc32qi(last, *p);
  return ~last;
}
#endif

}  // namespace detail

/// CRC-32C (Castagnoli; RFC 3720, 12.1) of `size` bytes that follow those whose CRC is `crc` (0: none).
inline std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return detail::crc32c_sse42(crc, data, size);
#endif
  return detail::crc32c_portable(crc, data, size);
}

}  // namespace millrace
