// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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
template <class T = void>
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
  void got_item(std::int64_t asked, std::int64_t now, std::int64_t samples) noexcept {
    asks(stage_record::never);
    if (first_ == 0) {  // start-up is no wait: what follows is counted from here on
      recorder_.mark();
      first_ = now;
    } else {
      stage_record::add(waited_, now - asked);
      waits_.add(now - asked);
    }
    stage_record::add(taken_, 1);
    stage_record::add(samples_, samples);
  }
  /// It was the end, or an error.
  void got_none(std::int64_t asked, std::int64_t now) noexcept {
    asks(stage_record::never);
    if (first_ != 0) stage_record::add(waited_, now - asked);
  }

  basic_run_stats<T> snapshot(std::int64_t now = monotonic_ns()) const {
    basic_run_stats<T> out;
    const std::int64_t began = began_;
    const std::int64_t first = first_;
    const std::int64_t until = ended_ != 0 ? ended_.load() : now;
    if (began != 0) out.seconds = static_cast<double>(until - began) * 1e-9;
    if (first != 0) out.first_after = static_cast<double>(std::min(first, until) - began) * 1e-9;
    const std::int64_t counted = began == 0 ? 0 : until - (first != 0 ? first : began);
    // What was under way at either end is counted whole.
    const auto share = [counted](std::int64_t ns) {
      return counted <= 0 || ns <= 0 ? 0 : static_cast<double>(std::min(ns, counted)) / static_cast<double>(counted);
    };
    out.items = taken_;
    out.samples = samples_;
    out.waited = share(waited_);
    out.next_p50_ns = waits_.quantile(0.5);
    out.next_p99_ns = waits_.quantile(0.99);
    out.next_max_ns = waits_.max();

    std::vector<const stage_record*> all;
    recorder_.for_each([&all](const stage_record& r) { all.push_back(&r); });
    for (const stage_record* r : all) {
      if (r->parent == nullptr) out.bytes += list(out.stages, all, *r, share, counted);
    }
    return out;
  }

 private:
  /// Adds the lines of the stages before `r`, then its own; returns the bytes that came into this part of the pipeline:
  /// what was read from stores or else, from the sources on, the first items that have a size.
  template <class Share>
  static std::int64_t list(std::vector<stage_stats>& lines, const std::vector<const stage_record*>& all,
                           const stage_record& r, const Share& share, std::int64_t counted) {
    std::int64_t came = 0;
    for (const stage_record* before : all) {
      if (before->parent == &r) came += list(lines, all, *before, share, counted);
    }
    if (r.parent == nullptr) return came;  // the training loop itself
    stage_stats s;
    s.name = r.name;
    s.advice = r.advice;
    if (s.name.empty()) {
      s.name = "stage " + std::to_string(lines.size() + 1);
    } else {
      int alike = 0;
      for (const stage_record* other : all) {
        if (other->parent != nullptr && s.name == other->name) ++alike;
      }
      if (alike > 1) s.name += number_of(lines, s.name);
    }
    s.items = r.items;
    s.failed = r.failed;
    s.bytes = r.bytes;
    const stage_record::times t = r.since_mark();
    s.busy = share(t.busy);
    s.pool = counted > 0 ? static_cast<double>(t.pool) / static_cast<double>(counted) : 0;
    s.starved = share(t.starved);
    s.blocked = share(t.blocked);
    s.waiting = share(t.asked - t.starved - t.busy);
    lines.push_back(std::move(s));
    if (r.read > 0) return r.read;
    return came > 0 ? came : r.bytes.load();
  }
  /// For the second of one name and the following ones.
  static std::string number_of(const std::vector<stage_stats>& lines, const std::string& name) {
    int before = 0;
    for (const stage_stats& s : lines) {
      if (s.name == name || s.name.starts_with(name + " #")) ++before;
    }
    return before == 0 ? std::string() : " #" + std::to_string(before + 1);
  }

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
