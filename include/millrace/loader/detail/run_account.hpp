// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/coro/stage_record.hpp>
#include <millrace/loader/detail/latency_histogram.hpp>
#include <millrace/loader/run_stats.hpp>

namespace millrace::detail {

/// The account of one run: the stages' records and the training thread's waits. snapshot() is for any thread.
class run_account {
 public:
  stage_recorder& recorder() noexcept { return recorder_; }
  stage_record* sink() {
    if (sink_ == nullptr) sink_ = recorder_.find_or_add("(training loop)", nullptr);
    return sink_;
  }

  void begin(std::int64_t now = monotonic_ns()) {
    sink()->waits_since_ns = stage_record::never;
    began_ = now;
  }
  void end(std::int64_t now = monotonic_ns()) noexcept { ended_ = now; }
  /// The training thread asks for an item at `ns`.
  void asks(std::int64_t ns) noexcept {
    if (sink_ != nullptr) sink_->waits_since_ns.store(ns, std::memory_order_relaxed);
  }
  /// The training thread asked for an item and has it now; how many samples are in it, 0 when that is not known.
  void got_item(std::int64_t asked, std::int64_t now, std::int64_t samples) noexcept;
  /// It was the end, or an error.
  void got_none(std::int64_t asked, std::int64_t now) noexcept {
    asks(stage_record::never);
    if (first_ != 0) stage_record::add(waited_, now - asked);
  }

  run_stats snapshot(std::int64_t now = monotonic_ns()) const;

 private:
  /// What was under way at either end is counted whole.
  static double share_of(std::int64_t counted, std::int64_t ns) noexcept {
    return counted <= 0 || ns <= 0 ? 0
                                   : static_cast<double>(ns < counted ? ns : counted) / static_cast<double>(counted);
  }
  /// Adds the lines of the stages before `r`, then its own; returns the bytes that came into this part of the pipeline:
  /// what was read from stores or else, from the sources on, the first items that have a size.
  static std::int64_t list(std::vector<stage_stats>& lines, const std::vector<const stage_record*>& all,
                           const stage_record& r, std::int64_t counted);
  /// For the second of one name and the following ones.
  static std::string number_of(const std::vector<stage_stats>& lines, const std::string& name);

  stage_recorder recorder_;
  stage_record* sink_ = nullptr;  // made before the loop's thread
  latency_histogram waits_;
  std::atomic<std::int64_t> began_{0};
  std::atomic<std::int64_t> ended_{0};
  std::atomic<std::int64_t> first_{0};  // when the first item was taken
  stage_record::counter waited_{0};     // since then
  stage_record::counter taken_{0};
  stage_record::counter samples_{0};
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/detail/impl/run_account.ipp>
#endif
