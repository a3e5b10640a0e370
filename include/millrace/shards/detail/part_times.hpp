// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>

#include <millrace/base/clock.hpp>

namespace millrace::detail {

/// How long recent parts took, by size, and how many second requests are still allowed. Thread-safe.
class part_times {
 public:
  static constexpr std::size_t kept = 64;   ///< of each size
  static constexpr std::size_t least = 20;  ///< with fewer nothing is called slow

  /// See hedge_options.
  part_times(double factor, duration soonest, double extra) noexcept
      : factor_(factor), soonest_(soonest), extra_(extra) {}

  /// One more request begins: after which time it is slow; nothing while that is not known.
  std::optional<duration> patience(std::size_t length);

  /// The right to a second request.
  bool take();

  /// A part of `length` bytes has come.
  void came(std::size_t length, duration took);

 private:
  static constexpr double most_allowed = 4;  // saved up in quiet times
  struct sizes {
    /// The one that 95 of 100 do not exceed: among at most 64 one of the four longest.
    duration percentile_95() const noexcept;

    duration times[kept];
    std::size_t count = 0;
    std::size_t next = 0;
  };
  /// Parts of similar size: within a factor of two.
  sizes& of(std::size_t length);

  const double factor_;
  const duration soonest_;
  const double extra_;
  std::mutex mutex_;
  std::unique_ptr<sizes> by_size_[64];
  double allowed_ = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/detail/impl/part_times.ipp>
#endif
