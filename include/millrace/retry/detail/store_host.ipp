// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/retry/detail/store_host.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::size_t store_host::readers() const {
  const std::lock_guard lock(mutex_);
  std::size_t n = 0;
  for (const host_share* each = readers_; each != nullptr; each = each->next_) ++n;
  return n;
}

MILLRACE_INLINE host_stats store_host::stats() const {
  const std::size_t n = readers();
  const std::lock_guard lock(mutex_);
  host_stats s;
  s.name = name_;
  s.in_flight = in_flight();
  s.requests = controller_.requests();
  s.part = controller_.part();
  s.readers = n;
  s.first_byte = first_byte();
  s.connection_rate = connection_rate();
  s.measured = s.connection_rate > 0;
  s.rate = controller_.rate();
  s.limit = controller_.limit();
  return s;
}

MILLRACE_INLINE void store_host::join(host_share& reader) {
  const std::lock_guard lock(mutex_);
  reader.next_ = std::exchange(readers_, &reader);
  bound();
}

MILLRACE_INLINE void store_host::leave(host_share& reader) noexcept {
  const std::lock_guard lock(mutex_);
  host_share** place = &readers_;
  while (*place != &reader) place = &(*place)->next_;
  *place = reader.next_;
  if (readers_ != nullptr) bound();  // the last one leaves its bounds
}

MILLRACE_INLINE void store_host::bound() noexcept {
  read_controller::bounds all = readers_->bounds_;
  for (const host_share* each = readers_->next_; each != nullptr; each = each->next_) {
    const read_controller::bounds& b = each->bounds_;
    all.bytes = added(all.bytes, b.bytes);
    all.requests = added(all.requests, b.requests);
    all.start = std::max(all.start, b.start);
    all.longest = std::max(all.longest, b.longest);
    all.shortest = std::min(all.shortest, b.shortest);
    all.loops = std::max(all.loops, b.loops);
  }
  controller_.set_bounds(all);
  show();
}

MILLRACE_INLINE void store_host::show() noexcept {
  requests_.store(controller_.requests(), std::memory_order_relaxed);
  part_.store(controller_.part(), std::memory_order_relaxed);
  at_bytes_.store(controller_.at_bytes(), std::memory_order_relaxed);
  measured_.store(controller_.has_measured(), std::memory_order_relaxed);
  if (!controller_.has_measured()) return;
  first_byte_.store(controller_.first_byte(), std::memory_order_relaxed);
  connection_rate_.store(controller_.connection_rate(), std::memory_order_relaxed);
  link_is_full_.store(controller_.link_is_full(), std::memory_order_relaxed);
}

MILLRACE_INLINE void store_host::finished(time_point now, std::size_t bytes, duration first, duration total,
                                          bool whole) noexcept {
  const std::lock_guard lock(mutex_);
  controller_.finished(now, bytes, first, total, in_flight(), whole);
  show();
}

MILLRACE_INLINE void store_host::held_back(time_point now) noexcept {
  const std::lock_guard lock(mutex_);
  controller_.held_back(now);
  show();
}

MILLRACE_INLINE std::shared_ptr<store_host> store_hosts::of(const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (std::shared_ptr<store_host>* each = &first_; *each != nullptr; each = &(*each)->next_) {
    if ((*each)->name() == name) return *each;
  }
  const bool too_many = count_ >= many;
  for (std::shared_ptr<store_host>* each = &first_; too_many && *each != nullptr;) {
    if (each->use_count() > 1) {
      each = &(*each)->next_;
      continue;
    }
    std::shared_ptr<store_host> next = std::move((*each)->next_);
    *each = std::move(next);
    --count_;
  }
  std::shared_ptr<store_host> made(new store_host(name));
  made->next_ = std::move(first_);
  first_ = made;
  ++count_;
  return made;
}

MILLRACE_INLINE std::vector<host_stats> store_hosts::stats() const {
  std::vector<host_stats> all;
  const std::lock_guard lock(mutex_);
  for (const store_host* each = first_.get(); each != nullptr; each = each->next_.get()) all.push_back(each->stats());
  std::sort(all.begin(), all.end(), [](const host_stats& a, const host_stats& b) { return a.name < b.name; });
  return all;
}

MILLRACE_INLINE host_share::host_share(const coroutine_context& here, const std::string& name, const bounds& b)
    : bounds_([&] {
        bounds all = b;
        all.loops = std::max(all.loops, here.runtime().loops());
        return all;
      }()),
      name_(name),
      stage_(here.stage()),
      host_(name.empty() || here.runtime().hosts() == nullptr
                ? std::shared_ptr<store_host>(new store_host(std::string()))
                : here.runtime().hosts()->of(name)) {
  host_->join(*this);
}

MILLRACE_INLINE bool host_share::may_begin(bool consumer_waits) noexcept {
  if (in_flight_ >= bounds_.requests) {
    satisfied();
    return false;
  }
  const std::size_t all = host_->requests();
  const std::size_t readers = host_->active_.load(std::memory_order_relaxed) + (in_flight_ == 0 ? 1 : 0);
  // Two of each reader whatever the number: one is on its way while the other is received.
  if (in_flight_ < std::max<std::size_t>(2, all / std::max<std::size_t>(1, readers))) return true;
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

MILLRACE_INLINE bool host_share::is_quick() const noexcept {
  constexpr double quick = 0.01;  // seconds
  const double rate = host_->connection_rate();
  return has_measured() && rate > 0 && host_->first_byte() + static_cast<double>(part()) / rate < quick;
}

MILLRACE_INLINE std::size_t host_share::ahead(std::size_t longest) const noexcept {
  return has_measured() && !is_quick() ? requests() * std::min(part(), longest) : 0;
}

MILLRACE_INLINE void host_share::note(const result& r) noexcept {
  if (stage_ == nullptr) return;
  const std::size_t n = requests();
  stage_->reads.store(static_cast<std::int64_t>(n), std::memory_order_relaxed);
  stage_->read_part.store(static_cast<std::int64_t>(part()), std::memory_order_relaxed);
  stage_->read_first_ns.store(static_cast<std::int64_t>(1e9 * host_->first_byte()), std::memory_order_relaxed);
  stage_->read_rate.store(static_cast<std::int64_t>(host_->connection_rate()), std::memory_order_relaxed);
  if (!r.waits || !has_measured()) return;
  stage_record::counter stage_record::*by = nullptr;
  if (!at_number()) {
    if (r.full) by = r.full_by;
  } else if (host_->link_is_full()) {
    by = &stage_record::kept_by_link;
  } else if (n == bounds_.requests) {
    by = &stage_record::kept_by_requests;
  } else {
    by = host_->at_bytes() ? &stage_record::kept_by_memory : &stage_record::kept_by_link;
  }
  if (by != nullptr) stage_record::add(stage_, by, 1);
}

MILLRACE_INLINE void host_share::finished(time_point now, const result& r) noexcept {
  note(r);
  if (r.held.count() > 0) return host_->held_back(now);  // its time says nothing of other reads
  if (r.bytes == 0 || (!at_number() && !(r.full && r.waits))) return;
  if (!host_->name().empty() && r.first.count() == 0) return;  // not the store's: it came from a cache
  host_->finished(now, r.bytes, r.first, r.total, r.whole);
}

}  // namespace millrace::detail
