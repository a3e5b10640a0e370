// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Functions of a profiler, for runtime_options::ranges: called as work begins and ends, on the thread that does it.
/// Ranges are jobs of a pool, by the name of their stage, copies to a device ("copy"), and on the training thread
/// "first item", "wait" and "step" in turn. Each push() has a pop() on the same thread, as long as one thread uses the
/// run until it is dropped. Locks of the library may be held during the calls.
struct profiler_ranges {
  void (*push)(const char* name) noexcept;  ///< `name` lives as long as the runtime
  void (*pop)() noexcept;
};

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// A range for as long as it lives.
class pushed_range {
 public:
  /// `to`: null: no range.
  pushed_range(const profiler_ranges* to, const char* name) noexcept : to_(to) {
    if (to_ != nullptr) to_->push(name);
  }
  pushed_range(const pushed_range&) = delete;
  pushed_range& operator=(const pushed_range&) = delete;
  ~pushed_range() {
    if (to_ != nullptr) to_->pop();
  }

 private:
  const profiler_ranges* const to_;
};

/// The lane in which an event of a trace is drawn.
enum class trace_lane : unsigned char {
  training,    ///< key: the run
  pool,        ///< key: the thread of its pool
  connection,  ///< key: our port
  queue,       ///< requests that wait for a connection; may overlap, as the lanes below
  list,        ///< pages of listings
  part,        ///< ranged reads of stages
  copy,        ///< batches whose copy to a device is enqueued
};

/// Something that took time.
struct trace_event {
  std::int64_t begin = 0;  ///< of monotonic_ns()
  std::int64_t end = 0;
  const char* name = "";  ///< lives as long as the runtime
  trace_lane lane = trace_lane::training;
  std::uint32_t key = 0;
  std::int64_t bytes = 0;  ///< 0: not shown
};

/// Keeps the latest events of a runtime's runs, while one of them is traced: runtime_parts::trace(). Any thread.
/// A lock for each event: they are requests, parts, jobs and steps, not samples.
class tracer {
 public:
  /// Events that it holds: 128 Ki of 48 bytes.
  static constexpr std::size_t most = std::size_t{1} << 17;

  explicit tracer(std::size_t events = most) noexcept : most_(events) {}
  tracer(const tracer&) = delete;
  tracer& operator=(const tracer&) = delete;
  ~tracer() { delete[] ring_; }
  bool on() const noexcept { return runs_.load(std::memory_order_relaxed) > 0; }
  void add(const trace_event& e) noexcept {
    const std::lock_guard lock(mutex_);
    if (ring_ == nullptr) return;
    ring_[added_++ % most_] = e;
  }

  /// A run that is traced begins. Returns how many events there were so far. `run`: its number, from 1.
  std::uint64_t start(std::uint32_t& run) {
    const std::lock_guard lock(mutex_);
    if (ring_ == nullptr) ring_ = new trace_event[most_];
    runs_.fetch_add(1, std::memory_order_relaxed);
    run = ++started_;
    return added_;
  }
  /// It ends: the events since, as far as they are still there, oldest first; and how many are not.
  std::vector<trace_event> stop(std::uint64_t since, std::uint64_t& dropped) {
    const std::lock_guard lock(mutex_);
    runs_.fetch_sub(1, std::memory_order_relaxed);
    dropped = added_ - since > most_ ? added_ - since - most_ : 0;
    std::vector<trace_event> out;
    out.reserve(added_ - since - dropped);
    for (std::uint64_t i = since + dropped; i < added_; ++i) out.push_back(ring_[i % most_]);
    return out;
  }

 private:
  const std::size_t most_;
  std::atomic<int> runs_{0};
  std::mutex mutex_;
  trace_event* ring_ = nullptr;  // most_ of them, once a run is traced
  std::uint64_t added_ = 0;
  std::uint32_t started_ = 0;
};

}  // namespace millrace::detail
