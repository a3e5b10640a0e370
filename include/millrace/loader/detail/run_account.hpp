// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/minmax.hpp>
#include <millrace/coro/stage_record.hpp>
#include <millrace/loader/detail/latency_histogram.hpp>
#include <millrace/loader/run_stats.hpp>

namespace millrace::detail {

/// The account of one run: the stages' records and the training thread's waits. snapshot() is for any thread.
template <class T = void>
class run_account {
 public:
  stage_recorder& recorder() noexcept { return recorder_; }
  stage_record* sink() {
    if (sink_ == nullptr) sink_ = recorder_.find_or_add("(training loop)", nullptr);
    return sink_;
  }

  void begin() {
    sink()->waits_since_ns = stage_record::never;
    began_ = monotonic_ns();
  }
  void end() noexcept { ended_ = monotonic_ns(); }
  /// The training thread asks for an item at `ns`.
  void asks(std::int64_t ns) noexcept {
    if (sink_ != nullptr) sink_->waits_since_ns.store(ns, std::memory_order_relaxed);
  }
  /// The training thread asked for an item and got it after `ns`.
  void add_wait(std::int64_t ns, bool got_item) noexcept {
    asks(stage_record::never);
    waited_.store(waited_.load(std::memory_order_relaxed) + ns, std::memory_order_relaxed);
    if (!got_item) return;
    waits_.add(ns);
    taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  basic_run_stats<T> snapshot() const {
    basic_run_stats<T> out;
    const std::int64_t began = began_;
    const std::int64_t ended = ended_;
    const double length = static_cast<double>((ended != 0 ? ended : monotonic_ns()) - began);
    out.seconds = began == 0 ? 0 : length * 1e-9;
    out.items = taken_;
    // The thread that waits for the end may wake up after it.
    const double waited = static_cast<double>(waited_);
    out.waited = length > 0 ? min_of(waited, length) / length : 0;
    out.next_p50_ns = waits_.quantile(0.5);
    out.next_p99_ns = waits_.quantile(0.99);
    out.next_max_ns = waits_.max();
    recorder_.for_each([&](const stage_record& r) {
      if (r.parent == nullptr) return;  // the training loop itself
      stage_stats s;
      s.name = r.name;
      s.items = r.items;
      s.failed = r.failed;
      s.bytes = r.bytes;
      const auto share = [&](std::int64_t ns) { return length > 0 ? static_cast<double>(ns) / length : 0; };
      s.busy = share(r.busy_ns);
      s.pool = share(r.pool_ns);
      s.starved = share(r.starved_ns);
      s.blocked = share(r.blocked_ns);
      const std::int64_t waiting = r.asked_ns - r.starved_ns - r.busy_ns;
      s.waiting = waiting > 0 ? share(waiting) : 0;
      if (s.bytes > out.bytes) out.bytes = s.bytes;
      out.stages.insert(out.stages.begin(), std::move(s));
    });
    return out;
  }

 private:
  stage_recorder recorder_;
  stage_record* sink_ = nullptr;  // made before the loop's thread
  latency_histogram waits_;
  std::atomic<std::int64_t> began_{0};
  std::atomic<std::int64_t> ended_{0};
  std::atomic<std::int64_t> waited_{0};
  std::atomic<std::int64_t> taken_{0};
};

}  // namespace millrace::detail
