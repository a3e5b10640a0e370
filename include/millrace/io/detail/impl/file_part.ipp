// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/io/detail/file_part.hpp>

namespace millrace::detail {

MILLRACE_INLINE file_part direct_part(const char* memory, std::size_t length, std::uint64_t offset) noexcept {
  constexpr std::size_t alignment = 4096;
  const auto memory_rest = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(memory) % alignment);
  const auto offset_rest = static_cast<std::size_t>(offset % alignment);
  if (memory_rest != offset_rest) return {length, false};
  if (offset_rest != 0) return {std::min(length, alignment - offset_rest), false};
  if (length < alignment) return {length, false};
  return {length / alignment * alignment, true};
}

}  // namespace millrace::detail
