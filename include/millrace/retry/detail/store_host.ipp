// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/retry/detail/store_host.hpp>

namespace millrace::detail {

MILLRACE_INLINE std::size_t store_host::readers() const {
  const std::lock_guard lock(mutex_);
  return readers_.size();
}

MILLRACE_INLINE void store_host::join(const host_share& reader) {
  const std::lock_guard lock(mutex_);
  readers_.push_back(&reader);
  bound();
}

MILLRACE_INLINE void store_host::leave(const host_share& reader) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(readers_, &reader);
  if (!readers_.empty()) bound();  // the last one leaves what it has learnt
}

MILLRACE_INLINE void store_host::bound() noexcept {
  read_controller::bounds all = readers_.front()->bounds_;
  for (std::size_t i = 1; i < readers_.size(); ++i) {
    const read_controller::bounds& b = readers_[i]->bounds_;
    all.bytes += std::min(b.bytes, SIZE_MAX - all.bytes);
    all.requests += std::min(b.requests, SIZE_MAX - all.requests);
    all.start = std::max(all.start, b.start);
    all.longest = std::max(all.longest, b.longest);
    all.shortest = std::min(all.shortest, b.shortest);
  }
  controller_.set_bounds(all);
  show();
}

MILLRACE_INLINE void store_host::show() noexcept {
  requests_.store(controller_.requests(), std::memory_order_relaxed);
  part_.store(controller_.part(), std::memory_order_relaxed);
  at_bytes_.store(controller_.at_bytes(), std::memory_order_relaxed);
  measured_.store(controller_.has_measured(), std::memory_order_relaxed);
}

MILLRACE_INLINE void store_host::finished(time_point now, std::size_t bytes, duration first, duration total,
                                          bool whole) noexcept {
  const std::lock_guard lock(mutex_);
  controller_.finished(now, bytes, first, total, in_flight(), whole);
  show();
}

MILLRACE_INLINE std::shared_ptr<store_host> store_hosts::of(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (hosts_.size() >= many) std::erase_if(hosts_, [](const auto& each) { return each.second.use_count() == 1; });
  std::shared_ptr<store_host>& host = hosts_[name];
  if (host == nullptr) host = std::make_shared<store_host>();
  return host;
}

MILLRACE_INLINE host_share::host_share(const coroutine_context& here, const std::string& name, const bounds& b)
    : bounds_(b),
      named_(!name.empty() && here.runtime().hosts() != nullptr),
      stage_(here.stage()),
      host_(named_ ? here.runtime().hosts()->of(name) : std::make_shared<store_host>()) {
  host_->join(*this);
}

MILLRACE_INLINE host_share& host_shares::of(std::string name) {
  for (const auto& [known, share] : shares_) {
    if (known == name) return *share;
  }
  auto share = std::make_unique<host_share>(here_, name, bounds_);
  return *shares_.emplace_back(std::move(name), std::move(share)).second;
}

MILLRACE_INLINE bool host_share::may_begin(bool consumer_waits) noexcept {
  if (in_flight_ >= bounds_.requests) {
    satisfied();
    return false;
  }
  const std::size_t all = host_->requests();
  const std::size_t readers = host_->active_.load(std::memory_order_relaxed) + (in_flight_ == 0 ? 1 : 0);
  if (in_flight_ < std::max<std::size_t>(1, all / std::max<std::size_t>(1, readers))) return true;
  const std::size_t others = host_->hungry_.load(std::memory_order_relaxed) - (hungry_ ? 1 : 0);
  if (host_->in_flight() < all && (consumer_waits || others == 0)) return true;
  if (!consumer_waits) {
    satisfied();
  } else if (!std::exchange(hungry_, true)) {
    host_->hungry_.fetch_add(1, std::memory_order_relaxed);
  }
  return false;
}

MILLRACE_INLINE host_share::request host_share::begin() noexcept {
  satisfied();
  if (in_flight_++ == 0) host_->active_.fetch_add(1, std::memory_order_relaxed);
  host_->in_flight_.fetch_add(1, std::memory_order_relaxed);
  return request(*this);
}

MILLRACE_INLINE void host_share::ended() noexcept {
  if (--in_flight_ == 0) host_->active_.fetch_sub(1, std::memory_order_relaxed);
  host_->in_flight_.fetch_sub(1, std::memory_order_relaxed);
}

MILLRACE_INLINE std::size_t host_share::part() const noexcept {
  const std::size_t shortest = std::min(bounds_.shortest, bounds_.longest);
  const std::size_t wanted = host_->part();
  std::size_t part = std::max<std::size_t>(1, std::min(bounds_.longest, bounds_.bytes / 2));
  while (part / 2 >= shortest && part > wanted) part /= 2;
  return part;
}

MILLRACE_INLINE void host_share::note(const result& r) noexcept {
  if (stage_ == nullptr) return;
  const std::size_t n = requests();
  stage_->reads.store(static_cast<std::int64_t>(n), std::memory_order_relaxed);
  stage_->read_part.store(static_cast<std::int64_t>(part()), std::memory_order_relaxed);
  if (!r.waits || !has_measured()) return;
  stage_record::counter stage_record::*by = nullptr;
  if (!at_number()) {
    if (r.full) by = r.full_by;
  } else if (n == bounds_.requests) {
    by = &stage_record::kept_by_requests;
  } else {
    by = host_->at_bytes() ? &stage_record::kept_by_memory : &stage_record::kept_by_store;
  }
  if (by != nullptr) stage_record::add(stage_, by, 1);
}

MILLRACE_INLINE void host_share::finished(time_point now, const result& r) noexcept {
  note(r);
  if (r.bytes == 0 || (!at_number() && !(r.full && r.waits))) return;
  if (named_ && r.first.count() == 0) return;  // not the store's: it came from a cache
  host_->finished(now, r.bytes, r.first, r.total, r.whole);
}

}  // namespace millrace::detail
