// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/device/detail/slots.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::vector<image_to_decode> find_images(const host_batch& batch, void* memory) {
  const batch_layout& layout = batch.layout();
  std::optional<std::size_t> field;
  for (std::size_t i = 0; i < layout.fields().size(); ++i) {
    if (layout.fields()[i].on_host()) continue;
    if (field) {
      throw configuration_error("a batch has one field of undecoded images, and this one has " +
                                layout.fields()[*field].name() + " and " + layout.fields()[i].name());
    }
    field = i;
  }
  std::vector<image_to_decode> found;
  if (!field) return found;
  auto* const pixels = layout.tensor(memory, *field, batch.size()).as<std::uint8_t>();
  const auto* const offsets = batch.field(layout.fields()[*field].name() + "_offsets").as<const std::int64_t>();
  const std::span<const undecoded_image> images = batch.tags<undecoded_image>();
  const std::span<const origin> from = batch.tags<origin>();
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::string& key = batch.keys()[i];
    const where at = from.empty() ? where{std::string(), std::nullopt, key} : from[i].at(key);
    const auto room = static_cast<std::size_t>(offsets[i + 1] - offsets[i]);
    if (room != images[i].pixel_bytes()) {
      throw configuration_error("the sample " + key + " has room for " + std::to_string(room) + " bytes in " +
                                layout.fields()[*field].name() + ", and its undecoded_image has " +
                                std::to_string(images[i].pixel_bytes()));
    }
    if (room == 0) continue;  // fills the batch up
    found.push_back({&images[i], pixels + offsets[i], at});
  }
  return found;
}

MILLRACE_INLINE slot_pool::slot_pool(const coroutine_context& here, std::shared_ptr<const void> device,
                                     std::vector<std::shared_ptr<device_slot>> slots, std::shared_ptr<slot_cache> cache,
                                     std::size_t slot_bytes, std::size_t memories, duration limit)
    : executor_(here.get_executor()),
      stage_(here.stage()),
      run_(here.run()),
      device_(std::move(device)),
      cache_(std::move(cache)),
      slot_bytes_(slot_bytes),
      memories_(memories),
      limit_(limit),
      slots_(std::move(slots)) {
  free_.reserve(slots_.size());
  draining_.reserve(slots_.size());  // so that returned(), which must not throw, never allocates
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    free_.push_back(i);
    held_.push_back(0);
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
    kept->use_device(device_.get());
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
    released_ = false;
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
    s->use_device(device_.get());
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
  s->pool_ = this;
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

MILLRACE_INLINE void slot_pool::returned(device_slot& s, std::exception_ptr failed,
                                         std::shared_ptr<void> owner) noexcept {
  const std::size_t i = s.index_;
  bool stage_gone = false;
  {
    const std::lock_guard lock(mutex_);
    stage_gone = ended_;
    if (!stage_gone) held_[i] = 0;
    if (failed) {
      error_ = failed;  // for the stage: a slot fewer, and a device in trouble
    } else if (!stage_gone) {
      draining_.push_back(i);
    }
    released_ = true;
    if (!stage_gone && waiter_ != nullptr && !posted_) {
      posted_ = true;
      owner_ = std::move(owner);
      executor_.post_remote(*this);  // alive: the waiter belongs to it, and leaves under the lock
    }
  }
  if (stage_gone) give_back(std::move(slots_[i]));
}

MILLRACE_INLINE void slot_pool::give_back(std::shared_ptr<device_slot> s) noexcept {
  if (s->fence()) {
    cache_->keep(std::move(s));
  } else {
    s->retire();
  }
}

// ---- waiting for a slot

MILLRACE_INLINE bool slot_pool::acquiring::await_ready() noexcept {
  try {
    slot_ = pool_.try_acquire();
  } catch (...) {
    error_ = std::current_exception();
  }
  return over();
}

MILLRACE_INLINE void slot_pool::enter(acquiring& waiter) noexcept {
  bool released = false;
  {
    const std::lock_guard lock(mutex_);
    waiter_ = &waiter;
    released = released_;
  }
  look(waiter, released);
  if (!waiter.over()) note_wait();
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

MILLRACE_INLINE void slot_pool::leave() noexcept {
  const std::lock_guard lock(mutex_);
  if (waiter_ == nullptr) return;
  waiter_ = nullptr;
  if (posted_ && !announced_) {
    announced_ = true;
    executor_.operation_started();
  }
}

MILLRACE_INLINE void slot_pool::run() noexcept {
  std::shared_ptr<void> owner;  // dropped last: it may be the last one
  {
    const std::lock_guard lock(mutex_);
    posted_ = false;
    owner = std::move(owner_);
    if (std::exchange(announced_, false)) executor_.operation_finished();
  }
  if (waiter_ != nullptr) look(*waiter_, true);  // set on this thread only
}

/// Wakes the waiter if there is a slot or an error, else arms its timer. `again`: or else it has just been looked.
MILLRACE_INLINE void slot_pool::look(acquiring& waiter, bool again) noexcept {
  if (waiter.over()) return;
  try {
    if (again) waiter.slot_ = try_acquire();
    if (!waiter.slot_) {
      {
        const std::lock_guard lock(mutex_);
        waiter.all_held_ = draining_.empty();
      }
      if (!waiter.all_held_) waiter.due_ = acquiring::never;
      arm(waiter);
      return;
    }
  } catch (...) {
    waiter.error_ = std::current_exception();
  }
  waiter.wake();
}

/// Until the slots are looked at again: never while the consumer holds all of them and its limit does not run, since a
/// release sends a message. Throws when the limit is over.
MILLRACE_INLINE void slot_pool::arm(acquiring& waiter) {
  const time_point now = executor_.now();
  if (!waiter.all_held_) {
    executor_.add_timer(waiter, added(now, waiter.pause_));
    waiter.pause_ = waiter.pause_ * 2 < last_look ? waiter.pause_ * 2 : last_look;
    return;
  }
  if (!consumer_waits_ || limit_ <= duration::zero()) {
    waiter.due_ = acquiring::never;
    executor_.remove_timer(waiter);
    return;
  }
  if (waiter.due_ == acquiring::never) waiter.due_ = added(now, limit_);
  if (waiter.due_ <= now) {
    const std::int64_t since = run_.consumer_waits_since();
    waiter.due_ = added(since == run_context::not_waiting ? now : time_point(duration(since)), limit_);
  }
  if (waiter.due_ > now) return executor_.add_timer(waiter, waiter.due_);
  const std::string all =
      slots_.size() == 1 ? "the only slot is" : "all " + std::to_string(slots_.size()) + " slots are";
  throw configuration_error("to_device: " + all + " kept by the consumer, which has waited " +
                            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(limit_).count()) +
                            " ms for one more batch: let batches go, or raise .slots (or .slot_wait, where another "
                            "thread lets them go)");
}

MILLRACE_INLINE void slot_pool::consumer_waits(bool now) {
  consumer_waits_ = now;
  if (waiter_ != nullptr && waiter_->all_held_ && !waiter_->over()) arm(*waiter_);
}

}  // namespace millrace::detail
