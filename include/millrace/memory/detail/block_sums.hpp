// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include <millrace/base/compiler.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The CRC-32C of each 4 KiB block of a slab, computed by the writer of the slab, from its beginning on, while the
/// bytes are in the caches: stores that go past the caches leave nothing there for a reader that comes later. The CRC
/// of any part is then made of those of its blocks; only parts of blocks at its ends are read.
class block_sums {
 public:
  static constexpr std::size_t block = 4096;

  /// Without memory for them nothing is summed, and all is read.
  explicit block_sums(std::size_t capacity) noexcept : sums_(new (std::nothrow) std::uint32_t[capacity / block + 1]) {}
  block_sums(const block_sums&) = delete;
  block_sums& operator=(const block_sums&) = delete;
  ~block_sums() { delete[] sums_; }

  /// Nothing of the slab is filled.
  void clear() noexcept { filled_ = 0; }
  /// The bytes from `at` on are these. Bytes that do not continue the earlier ones reset the sums.
  MILLRACE_INLINE void add(std::size_t at, const char* data, std::size_t size) noexcept;
  /// Likewise for a block, or for a last part, by its CRC.
  MILLRACE_INLINE void add(std::size_t at, std::uint32_t crc, std::size_t size) noexcept;
  /// The CRC-32C of bytes [begin, end) of the slab at `memory`.
  MILLRACE_INLINE std::uint32_t crc32c_of(const char* memory, std::size_t begin, std::size_t end) const noexcept;

 private:
  std::uint32_t* const sums_;  // the last one is of a part
  std::size_t filled_ = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/memory/detail/block_sums.ipp>
#endif
