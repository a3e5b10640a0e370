// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/slot_store.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void slot_cache::provide(std::size_t size, std::shared_ptr<device_slot>& slot) {
  if (std::shared_ptr<device_slot> kept = take(size, true)) {
    kept->clear();
    slot = std::move(kept);
    return;
  }
  for (const std::shared_ptr<device_slot>& each : take_others(size, false)) each->retire();
  try {
    slot->allocate(size);
  } catch (...) {
    const slots rest = take_others(size, true);
    if (rest.empty()) throw;
    for (const std::shared_ptr<device_slot>& each : rest) each->retire();
    slot->allocate(size);
  }
}

MILLRACE_INLINE void slot_cache::keep(std::shared_ptr<device_slot> slot) noexcept {
  if (slot->memory() == nullptr) return;
  slot->use_device(on_);
  try {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      const std::size_t size = slot->size();
      slots_.push_back(std::move(slot));
      last_size_ = size;
      return;
    }
  } catch (...) {  // no memory for the list
  }
  slot->retire();
}

MILLRACE_INLINE slab_pool slot_cache::pinned(std::size_t size, bool or_more) {
  std::vector<slab_pool> old;  // freed after the lock
  const std::lock_guard lock(mutex_);
  for (slab_pool& each : pinned_) {
    if (or_more ? each.slab_bytes() < size : each.slab_bytes() != size) continue;
    std::swap(each, pinned_.back());
    return pinned_.back();
  }
  slab_pool made(size, on_);
  if (closed_) return made;
  pinned_.push_back(made);
  if (pinned_.size() > 2) {
    old.push_back(pinned_.front());
    pinned_.erase(pinned_.begin());
  }
  return made;
}

MILLRACE_INLINE bool slot_cache::idle() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    for (const std::shared_ptr<device_slot>& each : slots_) {
      if (!each->done()) return false;
    }
  } catch (...) {  // a device in trouble: freeing might wait
    return false;
  }
  return true;
}

MILLRACE_INLINE void slot_cache::free() noexcept {
  std::vector<slab_pool> pools;  // freed last: the slots hold slabs of them
  slots all;
  {
    const std::lock_guard lock(mutex_);
    pools.swap(pinned_);
    all.swap(slots_);
  }
  for (const std::shared_ptr<device_slot>& each : all) each->retire();
}

MILLRACE_INLINE void slot_cache::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  free();
}

MILLRACE_INLINE std::shared_ptr<device_slot> slot_cache::take(std::size_t size, bool only_done) {
  const std::lock_guard lock(mutex_);
  if (size == 0) size = last_size_;
  auto found = slots_.end();
  bool found_done = false;
  for (auto i = slots_.begin(); i != slots_.end(); ++i) {  // in their order: the oldest is done first
    if ((*i)->size() < size) continue;
    const bool done = (*i)->done();
    if (only_done && !done) continue;
    const bool better = found == slots_.end() || (done && !found_done) ||
                        (done == found_done && (*i)->size() < (*found)->size());
    if (!better) continue;
    found = i;
    found_done = done;
  }
  if (found == slots_.end()) return nullptr;
  std::shared_ptr<device_slot> taken = std::move(*found);
  slots_.erase(found);
  return taken;
}

/// Takes out the slots that are not of this size and that the device is done with; those of the size that was kept last
/// `too`, or not.
MILLRACE_INLINE slot_cache::slots slot_cache::take_others(std::size_t size, bool last_too) {
  slots others;
  const std::lock_guard lock(mutex_);
  for (auto i = slots_.begin(); i != slots_.end();) {
    const bool wanted = (*i)->size() == size || (!last_too && (*i)->size() == last_size_);
    if (wanted || !(*i)->done()) {
      ++i;
      continue;
    }
    others.push_back(std::move(*i));
    i = slots_.erase(i);
  }
  return others;
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::shared_ptr<detail::slot_cache> slot_store::of(const std::shared_ptr<detail::slot_device>& on) {
  const std::lock_guard lock(mutex_);
  for (const auto& each : all_) {
    if (each->device().equals(*on)) return each;
  }
  return all_.emplace_back(std::make_shared<detail::slot_cache>(on));
}

MILLRACE_INLINE void slot_store::free() noexcept {
  // One by one, as a list of them would take memory; backwards, so that none is passed over where another thread
  // removes some.
  for (std::size_t rest = SIZE_MAX; rest != 0;) {
    std::shared_ptr<detail::slot_cache> each;
    {
      const std::lock_guard lock(mutex_);
      rest = std::min(rest, all_.size());
      if (rest != 0) each = all_[--rest];
    }
    if (each != nullptr) each->free();
  }
  free_idle();  // frees the devices themselves
}

MILLRACE_INLINE void slot_store::free_idle() noexcept {
  for (;;) {
    std::shared_ptr<detail::slot_cache> idle;  // ends outside the lock: freeing may take long
    const std::lock_guard lock(mutex_);
    std::size_t i = 0;
    // No pipeline has it: they get it only here.
    while (i < all_.size() && (all_[i].use_count() != 1 || !all_[i]->idle())) ++i;
    if (i == all_.size()) return;
    idle = std::move(all_[i]);
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

MILLRACE_INLINE slot_store& slot_store::of_process() {
  static slot_store* const store = new slot_store();
  return *store;
}

}  // namespace millrace
