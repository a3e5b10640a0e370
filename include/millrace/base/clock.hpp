// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <cstdint>
#include <mutex>

#include <millrace/version.hpp>

// <mutex> declares std::chrono's durations and steady_clock for its own interface; <chrono> itself would add calendars
// and formatting to every translation unit (0.2 s with g++ 12).

namespace millrace::inline MILLRACE_ABI {

/// Nanoseconds: what every pause and time-out is stated in.
using duration = std::chrono::nanoseconds;
/// The clock of loops; its epoch is arbitrary.
using clock = std::chrono::steady_clock;
/// A time of that clock, or of a virtual one.
using time_point = std::chrono::time_point<clock, duration>;

/// Nanoseconds of CLOCK_MONOTONIC: the time base of loops and of stage accounting.
std::int64_t monotonic_ns() noexcept;

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::int64_t monotonic_ns() noexcept {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

}  // namespace millrace
