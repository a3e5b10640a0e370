// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/pixel_buffer.hpp>

namespace millrace {

MILLRACE_INLINE pixel_buffer& pixel_buffer::operator=(pixel_buffer other) noexcept {
  memory_ = std::move(other.memory_);
  size_ = other.size_;
  return *this;
}

}  // namespace millrace
