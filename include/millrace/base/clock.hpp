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

/// Nanoseconds: the unit of every pause and time-out.
using duration = std::chrono::nanoseconds;
/// The clock of loops; its epoch is arbitrary.
using clock = std::chrono::steady_clock;
/// A time of that clock, or of a virtual one.
using time_point = std::chrono::time_point<clock, duration>;

/// Nanoseconds of CLOCK_MONOTONIC: the time base of loops and of stage accounting.
std::int64_t monotonic_ns() noexcept;

namespace detail {
/// The sum; the longest duration or the latest time if that overflows. Every time that is waited for, and every sum
/// with a duration of the program's, is made by these (tests/structure/check_structure.py).
constexpr duration added(duration a, duration b) noexcept;
constexpr time_point added(time_point t, duration d) noexcept;
/// So many nanoseconds, at most the longest duration; 0 if it is less, or no number.
constexpr duration nanoseconds(double ns) noexcept;
}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::int64_t monotonic_ns() noexcept {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

constexpr duration detail::added(duration a, duration b) noexcept {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a.count(), b.count(), &sum)) return duration(sum);
  return b.count() > 0 ? duration::max() : duration::min();
}

constexpr time_point detail::added(time_point t, duration d) noexcept {
  return time_point(added(t.time_since_epoch(), d));
}

constexpr duration detail::nanoseconds(double ns) noexcept {
  constexpr double beyond = 9223372036854775808.0;
  return ns >= beyond ? duration::max() : ns > 0 ? duration(static_cast<std::int64_t>(ns)) : duration(0);
}

}  // namespace millrace
