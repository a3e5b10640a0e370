// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include <millrace/version.hpp>

/// \file
/// Counts and histograms that only grow: of a runtime's requests, of a stage's pool jobs, of a run's steps. Adding
/// takes no lock and allocates nothing.

namespace millrace::inline MILLRACE_ABI {

/// Durations in fixed buckets, as they were when it was asked for.
class duration_stats {
 public:
  static constexpr std::size_t bounds = 17;
  /// Upper bounds in seconds, inclusive: 1, 2.5 and 5 times powers of ten, from 100 microseconds to 10 s, then 60 s.
  /// The last bucket has no upper bound.
  static constexpr double upper[bounds] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                           0.1,    0.25,    0.5,    1,     2.5,    5,     10,   60};

  std::uint64_t buckets[bounds + 1] = {};  ///< how many are in each alone
  std::uint64_t count = 0;
  double sum = 0;  ///< seconds
};

/// Counts of disk caches: of one cache in this process, or of all that a runtime's runs have read through.
class disk_cache_stats {
 public:
  std::uint64_t hits = 0;      ///< reads that came from the disk
  std::uint64_t misses = 0;    ///< reads that went to the store
  std::uint64_t hit_bytes = 0;
  std::uint64_t miss_bytes = 0;
  std::uint64_t waited = 0;    ///< reads that waited for another reader of the same bytes, of this process or another
  std::uint64_t admitted = 0;  ///< blocks of 1 MiB, or parts of them, that were written
  std::uint64_t refused = 0;   ///< blocks that were not: no room, the disk too slow, an error, no ETag
  std::uint64_t full = 0;      ///< of those, because all of .bytes were taken
  std::uint64_t slow = 0;      ///< of those, because too much waited to be written
  std::uint64_t given = 0;     ///< segments of older data whose slots were given to new, in a full cache
  std::uint64_t damaged = 0;   ///< blocks that were not as they had been written, and were read from the store
  std::uint64_t bytes = 0;     ///< the bound of the cache, of the one that was full last; 0: none was
};

namespace detail {

/// Counts of disk caches; any thread.
class disk_cache_counts {
 public:
  using counter = std::atomic<std::uint64_t>;

  static void add(counter& c, std::uint64_t n) noexcept { c.fetch_add(n, std::memory_order_relaxed); }
  disk_cache_stats stats() const noexcept {
    disk_cache_stats s;
    s.hits = hits.load(std::memory_order_relaxed);
    s.misses = misses.load(std::memory_order_relaxed);
    s.hit_bytes = hit_bytes.load(std::memory_order_relaxed);
    s.miss_bytes = miss_bytes.load(std::memory_order_relaxed);
    s.waited = waited.load(std::memory_order_relaxed);
    s.admitted = admitted.load(std::memory_order_relaxed);
    s.refused = refused.load(std::memory_order_relaxed);
    s.full = full.load(std::memory_order_relaxed);
    s.slow = slow.load(std::memory_order_relaxed);
    s.given = given.load(std::memory_order_relaxed);
    s.damaged = damaged.load(std::memory_order_relaxed);
    s.bytes = bytes.load(std::memory_order_relaxed);
    return s;
  }

  counter hits{0}, misses{0}, hit_bytes{0}, miss_bytes{0}, waited{0}, admitted{0}, refused{0}, full{0}, slow{0},
      given{0}, damaged{0}, bytes{0};
};

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

/// A number of events, and the text of the latest.
class counted_events {
 public:
  void add() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  /// For rare events: takes a lock.
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

/// Counts that a runtime keeps for all of its runs: runtime_parts::counts(). Any thread.
class runtime_counts {
 public:
  duration_histogram request, first_byte, part;
  counted_events retries, throttles, skipped;
  counted_events hedges, resumed;  // without a reason
  disk_cache_counts disk_cache;
};

}  // namespace detail
}  // namespace millrace
