// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>

namespace millrace {

MILLRACE_INLINE std::int64_t monotonic_ns() noexcept {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

}  // namespace millrace
