// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

/// \file
/// Counts and histograms that only grow: of a runtime's requests, of a stage's pool jobs, of a run's steps. Adding
/// takes no lock and allocates nothing.

namespace millrace {

/// Durations in fixed buckets, as they were when it was asked for.
class duration_stats {
 public:
  static constexpr std::size_t bounds = 17;
  /// Upper bounds in seconds, inclusive: 1, 2.5 and 5 times powers of ten, from 100 microseconds to 10 s, then 60 s.
  /// The last bucket, of what is longer, has none.
  static constexpr double upper[bounds] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                           0.1,    0.25,    0.5,    1,     2.5,    5,     10,   60};

  std::uint64_t buckets[bounds + 1] = {};  ///< how many are in each alone
  std::uint64_t count = 0;
  double sum = 0;  ///< seconds
};

namespace detail {

/// Counts durations; any thread.
class duration_histogram {
 public:
  void add(std::int64_t ns) noexcept {
    if (ns < 0) ns = 0;
    std::size_t i = 0;
    while (i < duration_stats::bounds && static_cast<double>(ns) > 1e9 * duration_stats::upper[i]) ++i;
    buckets_[i].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(ns, std::memory_order_relaxed);
  }
  duration_stats stats() const noexcept {
    duration_stats out;
    for (std::size_t i = 0; i <= duration_stats::bounds; ++i) {
      out.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
      out.count += out.buckets[i];
    }
    out.sum = 1e-9 * static_cast<double>(sum_.load(std::memory_order_relaxed));
    return out;
  }

 private:
  std::atomic<std::uint64_t> buckets_[duration_stats::bounds + 1] = {};
  std::atomic<std::int64_t> sum_{0};
};

/// A number of events, and what the latest of them says.
class counted_events {
 public:
  void add() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  /// For what is rare: takes a lock.
  void add(std::string reason) noexcept {
    add();
    const std::lock_guard lock(mutex_);
    last_.swap(reason);
  }
  std::int64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  std::string last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  std::atomic<std::int64_t> count_{0};
  mutable std::mutex mutex_;
  std::string last_;
};

/// What a runtime counts for all of its runs: runtime_parts::counts(). Any thread.
class runtime_counts {
 public:
  duration_histogram request, first_byte, part;
  counted_events retries, throttles, skipped;
  counted_events hedges, resumed;  // without a reason
};

}  // namespace detail
}  // namespace millrace
