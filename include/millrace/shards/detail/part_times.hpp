// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/shards/hedge_options.hpp>

namespace millrace::detail {

/// How long recent parts took, by size, and how many second requests are still allowed. Thread-safe.
class part_times {
 public:
  static constexpr std::size_t kept = 64;   ///< of each size
  static constexpr std::size_t least = 20;  ///< with fewer nothing is called slow

  explicit part_times(const hedge_options& options) noexcept : options_(options) {}

  /// One more request begins: after which time it is slow; nothing while that is not known.
  std::optional<duration> patience(std::size_t length) {
    std::lock_guard lock(mutex_);
    allowed_ = std::min(allowed_ + options_.extra, most_allowed);
    const sizes& s = of(length);
    if (s.times.size() < least) return std::nullopt;
    std::vector<duration> sorted = s.times;
    const auto p95 = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() * 95 / 100);
    std::nth_element(sorted.begin(), p95, sorted.end());
    const auto slow = duration(static_cast<duration::rep>(static_cast<double>(p95->count()) * options_.factor));
    return std::max(slow, options_.least);
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
    if (s.times.size() < kept) {
      s.times.push_back(took);
    } else {
      s.times[s.next++ % kept] = took;
    }
  }

 private:
  static constexpr double most_allowed = 4;  // saved up in quiet times
  struct sizes {
    std::vector<duration> times;
    std::size_t next = 0;
  };
  /// Parts of similar size: within a factor of two.
  sizes& of(std::size_t length) {
    std::size_t doublings = 0;
    while (length > 1) {
      length >>= 1;
      ++doublings;
    }
    if (by_size_.size() <= doublings) by_size_.resize(doublings + 1);
    return by_size_[doublings];
  }

  const hedge_options options_;
  std::mutex mutex_;
  std::vector<sizes> by_size_;
  double allowed_ = 0;
};

}  // namespace millrace::detail
