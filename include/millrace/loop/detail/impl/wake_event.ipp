// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/loop/detail/wake_event.hpp>

namespace millrace::detail {

MILLRACE_INLINE void wake_event::wake() noexcept {
  if (!sleeping_.load(std::memory_order_relaxed)) return;
  const std::uint64_t one = 1;
  while (::write(fd_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

MILLRACE_INLINE void wake_event::clear() noexcept {
  std::uint64_t count;
  while (::read(fd_.get(), &count, sizeof count) < 0 && errno == EINTR) {
  }
}

}  // namespace millrace::detail
