// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// <mutex> declares std::chrono's durations and steady_clock for its own interface; <chrono> itself would add calendars
// and formatting to every translation unit (0.2 s with g++ 12).
#include <mutex>

#include <cstdint>

#include <time.h>

namespace millrace {

/// Nanoseconds: what every pause and time-out is stated in.
using duration = std::chrono::nanoseconds;
/// The clock of loops; its epoch means nothing.
using clock = std::chrono::steady_clock;
/// A time of that clock, or of a virtual one.
using time_point = std::chrono::time_point<clock, duration>;

/// Nanoseconds of CLOCK_MONOTONIC: the time base of loops and of stage accounting.
std::int64_t monotonic_ns() noexcept;

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/base/impl/clock.ipp>
#endif
