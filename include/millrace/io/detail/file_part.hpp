// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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
file_part direct_part(const char* memory, std::size_t length, std::uint64_t offset) noexcept;

/// What an open gave: a descriptor or a negative errno value.
struct open_result {
  open_result() noexcept = default;
  owned_fd fd;
  std::int64_t error = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/detail/impl/file_part.ipp>
#endif
