// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <millrace/loop/detail/owned_fd.hpp>

namespace millrace::detail {

/// How the next piece of a transfer goes: past the page cache or through it.
struct file_part {
  std::size_t size;
  bool direct;
};

/// O_DIRECT wants memory, offset and length aligned, to the device's block size as a rule; 4096 suits every device in
/// use. The ragged head and tail go through the page cache, and all of it where memory and offset do not match.
inline file_part direct_part(const char* memory, std::size_t length, std::uint64_t offset) noexcept {
  constexpr std::size_t alignment = 4096;
  const auto memory_rest = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(memory) % alignment);
  const auto offset_rest = static_cast<std::size_t>(offset % alignment);
  if (memory_rest != offset_rest) return {length, false};
  if (offset_rest != 0) return {std::min(length, alignment - offset_rest), false};
  if (length < alignment) return {length, false};
  return {length / alignment * alignment, true};
}

/// What an open gave: a descriptor or a negative errno value.
struct open_result {
  open_result() noexcept = default;
  owned_fd fd;
  std::int64_t error = 0;
};

}  // namespace millrace::detail
