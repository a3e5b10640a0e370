// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/crc32.hpp>
#include <millrace/base/crc32c.hpp>
#include <millrace/base/crc64nvme.hpp>
#include <millrace/base/detail/crc_join.hpp>

namespace millrace {

/// The CRCs that object stores keep.
enum class crc_kind : unsigned char { none, crc32, crc32c, crc64nvme };

/// The CRC of bytes that come piece by piece, on their way or in parts that are joined later. Of kind none, it adds
/// nothing up.
template <class = void>
class basic_running_crc {
 public:
  basic_running_crc() = default;
  explicit basic_running_crc(crc_kind k) noexcept : kind_(k) {}

  crc_kind kind() const noexcept { return kind_; }
  std::uint64_t value() const noexcept { return value_; }  ///< in the lower bits
  std::uint64_t size() const noexcept { return size_; }    ///< bytes that have been added

  void add(const void* data, std::size_t size) noexcept {
    if (kind_ == crc_kind::none) return;
    const auto word = static_cast<std::uint32_t>(value_);
    if (kind_ == crc_kind::crc32) value_ = crc32(word, data, size);
    if (kind_ == crc_kind::crc32c) value_ = crc32c(word, data, size);
    if (kind_ == crc_kind::crc64nvme) value_ = crc64nvme(value_, data, size);
    size_ += size;
  }
  /// The bytes that `next` was made of, which must be of the same kind, follow.
  void join(const basic_running_crc& next) noexcept {
    const auto a = static_cast<std::uint32_t>(value_);
    const auto b = static_cast<std::uint32_t>(next.value_);
    if (kind_ == crc_kind::crc32) value_ = detail::crc_join<std::uint32_t, 0xedb88320u>(a, b, next.size_);
    if (kind_ == crc_kind::crc32c) value_ = detail::crc_join<std::uint32_t, 0x82f63b78u>(a, b, next.size_);
    if (kind_ == crc_kind::crc64nvme) {
      value_ = detail::crc_join<std::uint64_t, 0x9a6c9329ac4bc9b5u>(value_, next.value_, next.size_);
    }
    size_ += next.size_;
  }

 private:
  std::uint64_t value_ = 0;
  std::uint64_t size_ = 0;
  crc_kind kind_ = crc_kind::none;
};
using running_crc = basic_running_crc<>;

}  // namespace millrace
