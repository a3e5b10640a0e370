// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/shards/range_scheduler.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void read_window::took(std::size_t held, duration waited, time_point now, std::size_t enough) noexcept {
  add_to_round(held, waited, now);
  if (took_at_) {
    lately_waited_ += waited;
    lately_ += now - *took_at_;
    if (4 * lately_waited_ > lately_) raise(enough);
    if (lately_ > std::chrono::milliseconds(200)) {
      lately_waited_ /= 2;
      lately_ /= 2;
    }
  }
  took_at_ = now;
}

MILLRACE_INLINE void read_window::add_to_round(std::size_t held, duration waited, time_point now) noexcept {
  if (bytes_ == most_ && !(undoes_ && doubled_)) return;
  held_ += held;
  waited_ += waited;
  if (held_ < (begun_ || undoes_ ? bytes_ : bytes_ / 2)) return;
  if (begun_ && undoes_ && now - began_ < least_round) return;
  if (begun_) judge(now - began_);
  begun_ = true;
  began_ = now;
  held_ = 0;
  waited_ = duration(0);
}

MILLRACE_INLINE void read_window::judge(duration round) noexcept {
  const double waiting = static_cast<double>(waited_.count());
  const double per_byte = waiting / static_cast<double>(held_);
  if (doubled_ && per_byte > paid * before_) {
    resting_ = rest;
    if (undoes_) bytes_ = smaller_;
  }
  doubled_ = false;
  if (resting_ > 0) {
    --resting_;
  } else if (bytes_ < most_ && waiting > noticed * static_cast<double>(round.count())) {
    smaller_ = bytes_;
    bytes_ += std::min(bytes_ - kept_, most_ - bytes_);
    doubled_ = true;
    before_ = per_byte;
  }
}

MILLRACE_INLINE host_share& range_scheduler::share_of(const std::string& url) {
  const std::string host = store().host(url);
  for (host_share& each : shares_) {
    if (each.name() == host) return each;
  }
  return shares_.emplace_back(here_, host, bounds_);
}

MILLRACE_INLINE std::size_t range_scheduler::most_requests() const noexcept {
  std::size_t most = 0;
  for (const host_share& each : shares_) most = std::max(most, each.requests());
  return most;
}

MILLRACE_INLINE void range_scheduler::satisfied() noexcept {
  for (host_share& each : shares_) each.satisfied();
}

MILLRACE_INLINE void range_scheduler::consumer_waits(bool now) noexcept {
  waits_ = now;
  const time_point at = here_.get_executor().now();
  if (now) {
    waits_since_ = at;
  } else {
    waited_ += at - waits_since_;
  }
}

MILLRACE_INLINE bool range_scheduler::is_waited_for() const noexcept {
  return waits_ && here_.run().consumer_waits_since() != run_context::not_waiting;
}

MILLRACE_INLINE range_scheduler::turn::turn(range_scheduler& s, host_share& share, bool local, std::size_t bytes,
                                            bool first) noexcept
    : scheduler_(&s),
      request_(local ? host_share::request() : share.begin()),
      asked_(s.here_.get_executor().now()),
      bytes_(bytes),
      local_(local),
      first_(first) {
  ++s.requests_;
  s.bytes_ += bytes;
  s.firsts_ += first ? 1 : 0;
  s.locals_ += local ? 1 : 0;
  s.local_bytes_ += local ? bytes : 0;
}

MILLRACE_INLINE void range_scheduler::turn::finished(std::size_t bytes, duration first_byte, duration held,
                                                     bool whole) noexcept {
  const range_scheduler& s = *scheduler_;
  const time_point now = s.here_.get_executor().now();
  stage_record* const stage = local_ ? s.here_.stage() : nullptr;
  if (stage != nullptr) {
    const std::size_t most = std::min(most_local, s.bounds_.requests);
    stage->reads.store(static_cast<std::int64_t>(most), std::memory_order_relaxed);
    stage->read_part.store(static_cast<std::int64_t>(s.bounds_.longest), std::memory_order_relaxed);
    if (s.waits_) stage_record::add(stage, &stage_record::kept_by_disk, 1);
  }
  request_.finished(now, {.bytes = bytes,
                          .first = first_byte,
                          .total = now - asked_,
                          .held = held,
                          .whole = whole,
                          .waits = s.waits_,
                          .full = s.full_ && s.waiting_.empty(),
                          .full_by = s.full_by_});
  end();
}

MILLRACE_INLINE void range_scheduler::turn::end() noexcept {
  range_scheduler* const s = std::exchange(scheduler_, nullptr);
  if (s == nullptr) return;
  request_.end();
  --s->requests_;
  s->bytes_ -= bytes_;
  s->firsts_ -= first_ ? 1 : 0;
  s->locals_ -= local_ ? 1 : 0;
  s->local_bytes_ -= local_ ? bytes_ : 0;
}

MILLRACE_INLINE bool range_scheduler::may_begin(const wanted_range& r) noexcept {
  if (!r.first_) {
    if (alone_ != 0 || requests_ >= limits_.later) return false;
    if (firsts_ != 0 && added(bytes_, r.bytes_) > limits_.beside_first) return false;
  }
  if (requests_ != 0 && added(bytes_, r.bytes_) > limits_.bytes) return false;
  return may_begin(*r.share_, r.local_, r.bytes_);
}

MILLRACE_INLINE void range_scheduler::want(const std::shared_ptr<wanted_range>& range, host_share& share, bool local,
                                           std::size_t bytes, bool first) {
  range->share_ = &share;
  range->local_ = local;
  range->bytes_ = bytes;
  range->first_ = first;
  (local ? waiting_local_ : waiting_).push_back(range);
}

MILLRACE_INLINE std::shared_ptr<wanted_range> range_scheduler::next() noexcept {
  for (std::deque<std::weak_ptr<wanted_range>>* const from : {&waiting_local_, &waiting_}) {
    while (!from->empty()) {
      std::shared_ptr<wanted_range> first = from->front().lock();
      if (first != nullptr && !may_begin(*first)) break;
      from->pop_front();
      if (first != nullptr) return first;
    }
  }
  if (waiting_.empty()) satisfied();
  return nullptr;
}

MILLRACE_INLINE void range_scheduler::clear() noexcept {
  waiting_.clear();
  waiting_local_.clear();
  satisfied();
}

}  // namespace millrace::detail
