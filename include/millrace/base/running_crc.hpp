// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The CRCs that object stores keep.
enum class crc_kind : unsigned char { none, crc32, crc32c, crc64nvme };

/// The CRC of bytes that come piece by piece, on their way or in parts that are joined later. With kind none it
/// computes nothing.
class running_crc {
 public:
  running_crc() = default;
  explicit running_crc(crc_kind k) noexcept : kind_(k) {}
  /// The known CRC of `size` bytes.
  running_crc(crc_kind k, std::uint64_t value, std::uint64_t size) noexcept : value_(value), size_(size), kind_(k) {}

  crc_kind kind() const noexcept { return kind_; }
  std::uint64_t value() const noexcept { return value_; }  ///< in the lower bits
  std::uint64_t size() const noexcept { return size_; }    ///< bytes that have been added

  void add(const void* data, std::size_t size) noexcept;
  /// The bytes that `next` was made of, which must be of the same kind, follow.
  void join(const running_crc& next) noexcept;

 private:
  std::uint64_t value_ = 0;
  std::uint64_t size_ = 0;
  crc_kind kind_ = crc_kind::none;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/base/running_crc.ipp>
#endif
