// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/s3/ops/detail/cut_parts.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE void part_buffer::take(bytes& piece) {
  const std::size_t n = std::min(piece.size(), part_ - filled_);
  if (whole_.empty() && filled_ == 0 && n == part_) {
    whole_ = piece.slice(0, n);  // a part in one piece is not copied
  } else {
    reserve(filled_ + n);
    std::memcpy(memory_.data() + filled_, piece.data(), n);
  }
  filled_ += n;
  piece = piece.slice(n, piece.size() - n);
}

MILLRACE_INLINE bytes part_buffer::release() {
  bytes out = whole_.empty() ? memory_.share(0, filled_) : std::move(whole_);
  whole_ = bytes();
  memory_ = writable_bytes();
  filled_ = 0;
  return out;
}

MILLRACE_INLINE void part_buffer::reserve(std::size_t size) {
  if (memory_.capacity() >= size) return;
  const std::size_t small = std::min(part_, 256 * KiB);
  writable_bytes larger = size <= small ? writable_bytes::allocate(small) : slabs_.acquire();
  if (filled_ > 0) std::memcpy(larger.data(), memory_.data(), filled_);
  memory_ = std::move(larger);
}

}  // namespace millrace::s3::detail
