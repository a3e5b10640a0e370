// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/crc_join.hpp>
#include <millrace/base/running_crc.hpp>

namespace millrace {

MILLRACE_INLINE void running_crc::add(const void* data, std::size_t size) noexcept {
  if (kind_ == crc_kind::none) return;
  const auto word = static_cast<std::uint32_t>(value_);
  if (kind_ == crc_kind::crc32) value_ = crc32(word, data, size);
  if (kind_ == crc_kind::crc32c) value_ = crc32c(word, data, size);
  if (kind_ == crc_kind::crc64nvme) value_ = crc64nvme(value_, data, size);
  size_ += size;
}

MILLRACE_INLINE void running_crc::join(const running_crc& next) noexcept {
  const auto a = static_cast<std::uint32_t>(value_);
  const auto b = static_cast<std::uint32_t>(next.value_);
  if (kind_ == crc_kind::crc32) value_ = detail::crc_join<std::uint32_t, 0xedb88320u>(a, b, next.size_);
  if (kind_ == crc_kind::crc32c) value_ = detail::crc_join<std::uint32_t, 0x82f63b78u>(a, b, next.size_);
  if (kind_ == crc_kind::crc64nvme) {
    value_ = detail::crc_join<std::uint64_t, 0x9a6c9329ac4bc9b5u>(value_, next.value_, next.size_);
  }
  size_ += next.size_;
}

}  // namespace millrace
