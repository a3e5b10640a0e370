// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/device/detail/slots.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/sync/any_of.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE slot_pool::slot_pool(const coroutine_context& here, std::shared_ptr<slot_device> on, std::size_t slots,
                                     std::shared_ptr<slot_cache> cache, std::size_t slot_bytes, std::size_t memories,
                                     duration limit)
    : executor_(here.get_executor()),
      stage_(here.stage()),
      run_(here.run()),
      on_(std::move(on)),
      cache_(std::move(cache)),
      slot_bytes_(slot_bytes),
      memories_(memories),
      limit_(limit),
      held_(slots, 0) {
  draining_.reserve(slots);  // so that returned(), which must not throw, never allocates
  for (std::size_t i = 0; i < slots; ++i) {
    slots_.push_back(std::make_shared<device_slot>(on_));
    free_.push_back(i);
  }
}

/// Waits until `due` at most. A template of what it waits for, so that headers emit none of it (compiler.hpp).
template <class Waits>
task<void> wait_until(Waits waits, time_point due) {
  co_await any_of(std::move(waits), sleep_until(due));
}

MILLRACE_COROUTINE_BODY task<std::size_t> slot_pool::acquire() {
  constexpr duration last_look = std::chrono::milliseconds(1);
  duration pause = std::chrono::microseconds(50);
  time_point limit_over = time_point::max();
  for (bool first = true;; first = false) {
    std::uint64_t seen = 0;
    {
      const std::lock_guard lock(mutex_);
      seen = changes_;
    }
    const std::optional<std::size_t> i = try_acquire();
    if (i) co_return *i;
    if (first) note_wait();
    {
      const std::lock_guard lock(mutex_);
      all_held_ = draining_.empty();
    }
    limit_over = all_held_ ? held_until(limit_over) : time_point::max();
    time_point due = limit_over;
    if (!all_held_) {
      due = added(executor_.now(), pause);
      pause = pause * 2 < last_look ? pause * 2 : last_look;
    }
    if (due == time_point::max()) {
      co_await waiters_.until_above(seen, changes_, mutex_);
    } else {
      co_await wait_until(waiters_.until_above(seen, changes_, mutex_), due);
    }
    all_held_ = false;
  }
}

MILLRACE_INLINE std::optional<std::size_t> slot_pool::try_acquire() {
  collect();
  for (;;) {
    std::size_t i = 0;
    {
      const std::lock_guard lock(mutex_);
      if (free_.empty()) return std::nullopt;
      i = free_.front();
      free_.erase(free_.begin());
    }
    if (slots_[i]->memory() != nullptr) return i;
    std::shared_ptr<device_slot> kept = cache_->take(slot_bytes_);
    if (kept == nullptr) return i;
    kept->use_device(on_);
    slots_[i] = std::move(kept);
    if (slots_[i]->done()) {
      slots_[i]->clear();
      return i;
    }
    const std::lock_guard lock(mutex_);
    draining_.push_back(i);
  }
}

/// Frees the slots that the device is done with.
MILLRACE_INLINE void slot_pool::collect() {
  std::vector<std::size_t> look;
  {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    look.reserve(draining_.size());
    for (const std::size_t i : draining_) look.push_back(i);
  }
  for (const std::size_t i : look) {
    if (!slots_[i]->done()) continue;
    slots_[i]->clear();
    const std::lock_guard lock(mutex_);
    std::size_t at = 0;
    while (draining_[at] != i) ++at;
    draining_.erase(draining_.begin() + static_cast<std::ptrdiff_t>(at));
    free_.push_back(i);
  }
}

MILLRACE_INLINE device_slot& slot_pool::fill(std::size_t i, host_batch batch) {
  std::shared_ptr<device_slot>& s = slots_[i];
  const std::size_t room = has_images(batch) ? batch.layout().device_bytes() : batch.bytes();
  if (slot_bytes_ == 0) slot_bytes_ = batch.layout().device_bytes();
  if (s->memory() != nullptr && s->size() < room) s->retire();  // it is too small
  if (s->memory() == nullptr && room != 0) {
    if (room > slot_bytes_) grow(room);
    cache_->provide(slot_bytes_, s);
    s->use_device(on_);
  }
  const std::int64_t begun = monotonic_ns();
  const std::size_t bytes = batch.bytes();
  {
    const pushed_range range(executor_.runtime().ranges(), "copy");
    s->fill(std::move(batch));
  }
  if (tracer* const trace = executor_.runtime().trace()) {
    trace->add({.begin = begun,
                .end = monotonic_ns(),
                .name = "copy",
                .lane = trace_lane::copy,
                .bytes = static_cast<std::int64_t>(bytes)});
  }
  s->returned_ = callback<void(device_slot&, std::exception_ptr)>::to<&slot_pool::returned>(*this);
  s->index_ = i;
  const std::lock_guard lock(mutex_);
  held_[i] = 1;
  return *s;
}

/// The slots that get memory from now on have at least `n` bytes.
MILLRACE_INLINE void slot_pool::grow(std::size_t n) {
  const std::size_t half_as_much_again = slot_bytes_ + slot_bytes_ / 2;
  for (const std::size_t size : {n < half_as_much_again ? half_as_much_again : n, n}) {
    const std::size_t more = (size - slot_bytes_) * slots_.size() * memories_;
    if (!run_.budget().take(more)) continue;
    slot_bytes_ = size;
    return;
  }
  throw configuration_error("to_device: a batch of " + std::to_string(n) + " bytes does not fit the device slots of " +
                            std::to_string(slot_bytes_) + " bytes, and the budget leaves too little for " +
                            std::to_string(slots_.size()) + " larger ones: raise it, or have fewer .slots");
}

MILLRACE_INLINE void slot_pool::end() noexcept {
  std::vector<std::size_t> held;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    held.swap(held_);
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (held[i] == 0) give_back(std::move(slots_[i]));
  }
}

MILLRACE_INLINE void slot_pool::returned(device_slot& s, std::exception_ptr failed) noexcept {
  const std::size_t i = s.index_;
  {
    const std::lock_guard lock(mutex_);
    if (failed) error_ = failed;  // for the stage: a slot fewer, and a device in trouble
    if (!ended_) {
      held_[i] = 0;
      if (!failed) draining_.push_back(i);
      ++changes_;
      waiters_.wake_all();
      return;
    }
  }
  give_back(std::move(slots_[i]));
}

MILLRACE_INLINE void slot_pool::give_back(std::shared_ptr<device_slot> s) noexcept {
  if (s->fence()) {
    cache_->keep(std::move(s));
  } else {
    s->retire();
  }
}

/// In the stage's record: what the slot that will be free first waits for.
MILLRACE_INLINE void slot_pool::note_wait() noexcept {
  if (stage_ == nullptr) return;
  stage_record::counter stage_record::*by = &stage_record::kept_by_consumer;
  std::optional<std::size_t> first;
  {
    const std::lock_guard lock(mutex_);
    if (!draining_.empty()) first = draining_.front();
  }
  try {
    if (first) by = slots_[*first]->copied() ? &stage_record::kept_by_device : &stage_record::kept_by_copy;
  } catch (...) {
    return;  // the next look at the slot throws it
  }
  stage_record::add(stage_, by, 1);
}

/// Until when a consumer may hold all slots: for ever while its limit does not run. `limit_over`: what this said before
/// in the same wait. Throws when the limit is over.
MILLRACE_INLINE time_point slot_pool::held_until(time_point limit_over) const {
  if (!consumer_waits_ || limit_ <= duration::zero()) return time_point::max();
  const time_point now = executor_.now();
  if (limit_over == time_point::max()) limit_over = added(now, limit_);
  if (limit_over <= now) {
    const std::int64_t since = run_.consumer_waits_since();
    limit_over = added(since == run_context::not_waiting ? now : time_point(duration(since)), limit_);
  }
  if (limit_over > now) return limit_over;
  const std::string all =
      slots_.size() == 1 ? "the only slot is" : "all " + std::to_string(slots_.size()) + " slots are";
  throw configuration_error("to_device: " + all + " kept by the consumer, which has waited " +
                            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(limit_).count()) +
                            " ms for one more batch: let batches go, or raise .slots (or .slot_wait, where another "
                            "thread lets them go)");
}

MILLRACE_INLINE void slot_pool::consumer_waits(bool now) noexcept {
  consumer_waits_ = now;
  if (!all_held_) return;
  const std::lock_guard lock(mutex_);
  ++changes_;
  waiters_.wake_all();
}

}  // namespace millrace::detail
