// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/decode/detail/exif.hpp>

namespace millrace::detail {

MILLRACE_INLINE int exif_orientation(const std::uint8_t* data, std::size_t size) noexcept {
  if (size < 8) return 1;
  const bool little = data[0] == 'I' && data[1] == 'I';
  if (!little && !(data[0] == 'M' && data[1] == 'M')) return 1;
  const auto number = [&](std::size_t at, std::size_t length) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < length; ++i) {
      value |= std::uint32_t(data[at + i]) << 8 * (little ? i : length - 1 - i);
    }
    return value;
  };
  const std::size_t directory = number(4, 4);
  if (number(2, 2) != 42 || directory > size - 2) return 1;
  const std::size_t entries = number(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * 12;
    if (entry + 12 > size) break;
    if (number(entry, 2) != 0x0112) continue;
    const std::uint32_t value = number(entry + 8, 2);
    return number(entry + 2, 2) == 3 && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace millrace::detail
