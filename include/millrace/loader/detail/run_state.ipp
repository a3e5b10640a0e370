// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/http/detail/addresses.hpp>
#include <millrace/loader/detail/run_state.hpp>
#include <millrace/retry/detail/store_host.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void run_metrics::trace_to(tracer* events, std::uint32_t run, const profiler_ranges* ranges) noexcept {
  range(nullptr);
  trace_ = events;
  run_ = run;
  ranges_ = ranges;
}

MILLRACE_INLINE void run_metrics::range(const char* name) noexcept {
  if (ranges_ == nullptr) return;
  if (in_range_) ranges_->pop();
  in_range_ = name != nullptr;
  if (in_range_) ranges_->push(name);
}

MILLRACE_INLINE std::int64_t run_metrics::asks() noexcept {
  range(first_ == 0 ? "first item" : "wait");
  return monotonic_ns();
}

MILLRACE_INLINE void run_metrics::got_none(std::int64_t asked, std::int64_t now) noexcept {
  step_ended(asked);
  range(nullptr);
  if (trace_ != nullptr) trace_->add({.begin = asked, .end = now, .name = "end", .key = run_});
  if (first_ != 0) stage_record::add(waited_, now - asked);
}

MILLRACE_INLINE void run_metrics::step_ended(std::int64_t asked) noexcept {
  if (got_ns_ != 0) steps_.add(asked - got_ns_);
  if (got_ns_ != 0 && trace_ != nullptr) trace_->add({.begin = got_ns_, .end = asked, .name = "step", .key = run_});
  got_ns_ = 0;
}

MILLRACE_INLINE void run_metrics::got_item(std::int64_t asked, std::int64_t now, std::int64_t samples) noexcept {
  step_ended(asked);
  range("step");
  got_ns_ = now;
  if (trace_ != nullptr) {
    trace_->add({.begin = asked, .end = now, .name = first_ == 0 ? "first item" : "wait", .key = run_});
  }
  if (first_ == 0) {  // start-up is no wait: what follows is counted from here on
    recorder_.mark();
    first_ = now;
  } else {
    stage_record::add(waited_, now - asked);
    waits_.add(now - asked);
    wait_times_.add(now - asked);
  }
  stage_record::add(taken_, 1);
  stage_record::add(samples_, samples);
}

MILLRACE_INLINE run_stats run_metrics::snapshot(std::int64_t now) const {
  run_stats out;
  const std::int64_t began = began_;
  const std::int64_t first = first_;
  const std::int64_t until = ended_ != 0 ? ended_.load() : now;
  if (began != 0) out.seconds = static_cast<double>(until - began) * 1e-9;
  if (first != 0) out.first_after = static_cast<double>(std::min(first, until) - began) * 1e-9;
  const std::int64_t counted = began == 0 ? 0 : until - (first != 0 ? first : began);
  if (placer_ != nullptr) out.placement = placer_->now().text;
  out.items = taken_;
  out.samples = samples_;
  out.waited = share_of(counted, waited_);
  out.next_p50_ns = waits_.quantile(0.5);
  out.next_p99_ns = waits_.quantile(0.99);
  out.next_max_ns = waits_.max();
  out.place.epoch = epoch_.load(std::memory_order_relaxed);
  out.place.epochs = epochs_.load(std::memory_order_relaxed);
  out.place.batch = batch_.load(std::memory_order_relaxed);
  out.place.batches = batches_.load(std::memory_order_relaxed);
  out.placed = placed_.load(std::memory_order_relaxed);
  out.steps = steps_.stats();
  out.waits = wait_times_.stats();
  if (hosts_ != nullptr) {
    const runtime_counts& counts = hosts_->counts;
    request_stats& r = out.requests;
    r.request = counts.request.stats();
    r.first_byte = counts.first_byte.stats();
    r.part = counts.part.stats();
    r.retries = counts.retries.count();
    r.throttles = counts.throttles.count();
    r.hedges = counts.hedges.count();
    r.resumed = counts.resumed.count();
    r.skipped = counts.skipped.count();
    out.disk_cache = counts.disk_cache.stats();
    r.last_retry = counts.retries.last();
    r.last_throttle = counts.throttles.last();
    r.last_skipped = counts.skipped.last();
  }

  std::vector<const stage_record*> all;
  recorder_.for_each([&all](const stage_record& r) { all.push_back(&r); });
  for (const stage_record* r : all) {
    if (r->parent == nullptr) out.bytes += list(out.stages, all, *r, counted);
  }
  if (hosts_ != nullptr) out.hosts = hosts_->stats();
  if (addresses_ != nullptr) out.addresses_passed_over = addresses_->passed_over();
  out.loops = loops_;
  out.loops_by_cores = loops_by_cores_;
  return out;
}

MILLRACE_INLINE std::string run_metrics::name_of(const stage_record& stage) const {
  std::vector<const stage_record*> all, listed;
  recorder_.for_each([&all](const stage_record& r) { all.push_back(&r); });
  std::vector<stage_stats> lines;
  for (const stage_record* r : all) {
    if (r->parent == nullptr) list(lines, all, *r, 0, &listed);
  }
  for (std::size_t i = 0; i < listed.size(); ++i) {
    if (listed[i] == &stage) return lines[i].name;
  }
  return {};
}

MILLRACE_INLINE std::int64_t run_metrics::list(std::vector<stage_stats>& lines,
                                               const std::vector<const stage_record*>& all, const stage_record& r,
                                               std::int64_t counted, std::vector<const stage_record*>* records) {
  std::int64_t came = 0;
  for (const stage_record* before : all) {
    if (before->parent == &r) came += list(lines, all, *before, counted, records);
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
  s.reread = r.reread;
  s.bytes = r.bytes;
  s.jobs = r.jobs.stats();
  const stage_record::times t = r.since_mark();
  s.busy = share_of(counted, t.busy);
  if (t.items > 0) s.busy_each = 1e-9 * static_cast<double>(t.busy) / static_cast<double>(t.items);
  s.pool = counted > 0 ? static_cast<double>(t.pool) / static_cast<double>(counted) : 0;
  s.starved = share_of(counted, t.starved);
  s.blocked = share_of(counted, t.blocked);
  s.waiting = share_of(counted, t.asked - t.starved - t.busy);
  s.pool_threads = static_cast<unsigned>(r.pool_threads);
  s.pool_cores = static_cast<unsigned>(r.pool_cores);
  s.pool_given = r.pool_given;
  s.pool_limit = static_cast<std::size_t>(r.pool_limit);
  s.more_jobs = r.more_jobs;
  s.bound_by_bytes = r.full_by_bytes > r.full_by_number;
  s.reads = static_cast<std::size_t>(r.reads);
  s.read_part = static_cast<std::size_t>(r.read_part);
  s.read_first_byte = 1e-9 * static_cast<double>(r.read_first_ns);
  s.read_rate = static_cast<double>(r.read_rate);
  const std::int64_t kept = std::max({r.kept_by_memory.load(), r.kept_by_requests.load(), r.kept_by_link.load(),
                                      r.kept_by_shards.load(), r.kept_by_disk.load()});
  if (kept > 0) {
    s.limit = kept == r.kept_by_disk     ? read_limit::disk
              : kept == r.kept_by_link   ? read_limit::link
              : kept == r.kept_by_memory ? read_limit::memory
              : kept == r.kept_by_shards ? read_limit::shards
                                         : read_limit::requests;
  }
  s.own_shards = static_cast<std::size_t>(r.own_shards);
  s.own_requests = static_cast<std::size_t>(r.own_requests);
  s.own_bytes = static_cast<std::size_t>(r.own_bytes);
  s.bytes_option = r.bytes_option;
  if (r.measured_ns > 0) s.jobs_slept = static_cast<double>(r.slept_ns) / static_cast<double>(r.measured_ns);
  if (s.jobs.count > 0) s.jobs_crowded = static_cast<double>(r.crowded_jobs) / static_cast<double>(s.jobs.count);
  s.slots = static_cast<std::size_t>(r.slots);
  const std::int64_t waits = std::max({r.kept_by_copy.load(), r.kept_by_device.load(), r.kept_by_consumer.load()});
  if (waits > 0) {
    s.waits_for = waits == r.kept_by_copy     ? slot_limit::copy
                  : waits == r.kept_by_device ? slot_limit::device
                                              : slot_limit::consumer;
  }
  s.before_first = std::max(0.0, 1e-9 * static_cast<double>(r.own_before_mark()));
  lines.push_back(std::move(s));
  if (records != nullptr) records->push_back(&r);
  if (r.read > 0) return r.read;
  return came > 0 ? came : r.bytes.load();
}

MILLRACE_INLINE std::string run_metrics::number_of(const std::vector<stage_stats>& lines, const std::string& name) {
  int before = 0;
  for (const stage_stats& s : lines) {
    if (s.name == name || s.name.starts_with(name + " #")) ++before;
  }
  return before == 0 ? std::string() : " #" + std::to_string(before + 1);
}

MILLRACE_INLINE progress_line::progress_line(executor& ex, const run_metrics& metrics, const run_options& options,
                                             std::uint32_t rank)
    : executor_(ex), metrics_(metrics), options_(options), began_(ex.now()) {
  shown_ = options.show == progress::on ||
           (options.show == progress::automatic && rank == 0 && ::isatty(STDERR_FILENO) == 1);
  line_due_ = shown_ ? began_ + first_line : time_point::max();
  report_due_ = options.report != nullptr ? began_ + between_reports : time_point::max();
  arm();
}

MILLRACE_INLINE progress_line::~progress_line() {
  if (armed()) executor_.remove_timer(*this);
  report();
  if (!shown_) return;
  write();
  try {
    std::string table = metrics_.snapshot().table();
    table.pop_back();  // its last line's end
    log_line(executor_, table, log_level::info);
  } catch (...) {
    executor_.runtime().log(log_record(log_level::warning, "millrace: there is no memory for the table of stages"));
  }
}

MILLRACE_INLINE void progress_line::fire() noexcept {
  const time_point now = executor_.now();
  if (now >= line_due_) {
    write();
    line_due_ = added(now, std::clamp(now - began_, first_line, between_lines));
  }
  if (now >= report_due_) {
    report();
    report_due_ = added(now, between_reports);
  }
  arm();
}

MILLRACE_INLINE void progress_line::report() noexcept {
  if (options_.report == nullptr) return;
  run_stats now;
  try {
    now = metrics_.snapshot();
  } catch (...) {
    executor_.runtime().log(log_record(log_level::warning, "millrace: there is no memory for a report of the figures"));
    return;
  }
  options_.report(now);
}

MILLRACE_INLINE void progress_line::arm() noexcept {
  const time_point due = std::min(line_due_, report_due_);
  if (due != time_point::max()) executor_.add_timer(*this, due);
}

MILLRACE_INLINE void progress_line::write() noexcept {
  try {
    const run_stats s = metrics_.snapshot();
    log_line(executor_, std::to_string(static_cast<long>(s.seconds)) + " s: " + s.progress(), log_level::info);
  } catch (...) {
    executor_.runtime().log(
        log_record(log_level::warning, "millrace: there is no memory for a line of progress"));
  }
}

}  // namespace millrace::inline MILLRACE_ABI::detail
