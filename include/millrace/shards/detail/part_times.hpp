// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

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
  template <class = void>
  std::optional<duration> patience(std::size_t length) {
    std::lock_guard lock(mutex_);
    allowed_ = std::min(allowed_ + extra_, most_allowed);
    const sizes& s = of(length);
    if (s.count < least) return std::nullopt;
    const duration p95 = s.percentile_95();
    const auto slow = duration(static_cast<duration::rep>(static_cast<double>(p95.count()) * factor_));
    return std::max(slow, soonest_);
  }

  /// The right to a second request.
  bool take() {
    std::lock_guard lock(mutex_);
    if (allowed_ < 1) return false;
    allowed_ -= 1;
    return true;
  }

  /// A part of `length` bytes has come.
  void came(std::size_t length, duration took) {
    std::lock_guard lock(mutex_);
    sizes& s = of(length);
    s.times[s.next++ % kept] = took;
    if (s.count < kept) ++s.count;
  }

 private:
  static constexpr double most_allowed = 4;  // saved up in quiet times
  struct sizes {
    /// The one that 95 of 100 do not exceed: among at most 64 one of the four longest.
    template <class = void>
    duration percentile_95() const noexcept {
      const std::size_t from_top = count - count * 95 / 100;
      duration longest[kept - kept * 95 / 100] = {};  // the longest first
      for (std::size_t i = 0; i < count; ++i) {
        duration d = times[i];
        for (std::size_t k = 0; k < from_top; ++k) {
          if (d > longest[k]) std::swap(d, longest[k]);
        }
      }
      return longest[from_top - 1];
    }

    duration times[kept];
    std::size_t count = 0;
    std::size_t next = 0;
  };
  /// Parts of similar size: within a factor of two.
  sizes& of(std::size_t length) {
    std::size_t doublings = 0;
    while (length > 1) {
      length >>= 1;
      ++doublings;
    }
    if (by_size_[doublings] == nullptr) by_size_[doublings] = std::make_unique<sizes>();
    return *by_size_[doublings];
  }

  const double factor_;
  const duration soonest_;
  const double extra_;
  std::mutex mutex_;
  std::unique_ptr<sizes> by_size_[64];
  double allowed_ = 0;
};

}  // namespace millrace::detail
