// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <millrace/device/batch_pool.hpp>
#include <millrace/device/detail/device_slot.hpp>
#include <millrace/device/slot_store.hpp>

namespace millrace::detail {

/// The slots and the page-locked memory of one device that no pipeline uses now. Any thread.
///
/// Slots that the device still works on are kept as well: the next stage takes them over and waits for them, as it does
/// for those that it has filled itself, instead of allocating others. Of each kind the two sizes that were used last
/// are kept (training and validation, say), so that layouts that change from epoch to epoch do not pile up.
template <device D>
class kept_slots final : public kept_on_device {
 public:
  explicit kept_slots(const D& on) : device_(on) {}
  ~kept_slots() override { close(); }

  const D& on() const noexcept { return device_; }

  /// A slot of `size` bytes or more, or, where that is 0, of the size that was kept last; one that the device is done
  /// with, if there is one, and of those the smallest. False when there is none. Throws what the device reports.
  bool take(std::size_t size, device_slot<D>& into) { return take(size, into, false); }

  /// A slot of `size` bytes or more that the device is done with: one that was kept, or new memory for `into`. Throws
  /// what the device reports.
  void provide(std::size_t size, device_slot<D>& into) {
    if (take(size, into, true)) return into.empty();
    free(others_than(size, false));
    try {
      into.memory = device_.allocate_device(size);
    } catch (...) {
      std::vector<device_slot<D>> rest = others_than(size, true);
      if (rest.empty()) throw;
      free(std::move(rest));
      into.memory = device_.allocate_device(size);
    }
    into.size = size;
  }

  /// Keeps a slot that neither a batch nor a stage has any more.
  void keep(device_slot<D>&& slot) noexcept {
    if (slot.memory == nullptr) return;
    try {
      const std::lock_guard lock(mutex_);
      if (!closed_) {
        last_size_ = slot.size;
        slots_.push_back(std::move(slot));
        return;
      }
    } catch (...) {  // no memory for the list
    }
    slot.retire(device_);
  }

  /// Page-locked memory in slabs of `size` bytes; `or_more`: of more, where there are such.
  slab_pool pinned(std::size_t size, bool or_more = false) {
    std::vector<slab_pool> old;  // goes after the lock
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < pinned_.size(); ++i) {
      if (or_more ? pinned_[i].slab_bytes() < size : pinned_[i].slab_bytes() != size) continue;
      std::swap(pinned_[i], pinned_.back());
      return pinned_.back();
    }
    slab_pool made(size, std::make_shared<pinned_slab_source<D>>(device_));
    if (closed_) return made;
    pinned_.push_back(made);
    if (pinned_.size() > 2) {
      old.push_back(pinned_.front());
      pinned_.erase(pinned_.begin());
    }
    return made;
  }

  void free() noexcept override {
    std::vector<slab_pool> pools;
    std::vector<device_slot<D>> slots;
    {
      const std::lock_guard lock(mutex_);
      pools.swap(pinned_);
      slots.swap(slots_);
    }
    free(std::move(slots));  // first: they have slabs of the pools
  }
  void close() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    free();
  }

 private:
  bool take(std::size_t size, device_slot<D>& into, bool only_done) {
    const std::lock_guard lock(mutex_);
    if (size == 0) size = last_size_;
    const std::size_t none = slots_.size();
    std::size_t found = none;
    bool found_done = false;
    for (std::size_t i = 0; i < slots_.size(); ++i) {  // in their order: the oldest is done first
      if (slots_[i].size < size) continue;
      const bool done = slots_[i].done(device_);
      if (only_done && !done) continue;
      const bool better =
          found == none || (done && !found_done) || (done == found_done && slots_[i].size < slots_[found].size);
      if (!better) continue;
      found = i;
      found_done = done;
    }
    if (found == none) return false;
    into = std::move(slots_[found]);
    slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(found));
    return true;
  }
  /// Takes out what is not of this size and that the device is done with; the size that was kept last `too`, or not.
  std::vector<device_slot<D>> others_than(std::size_t size, bool last_too) {
    std::vector<device_slot<D>> others;
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < slots_.size();) {
      const bool wanted = slots_[i].size == size || (!last_too && slots_[i].size == last_size_);
      if (wanted || !slots_[i].done(device_)) {
        ++i;
        continue;
      }
      others.push_back(std::move(slots_[i]));
      slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return others;
  }
  void free(std::vector<device_slot<D>> slots) noexcept {
    for (device_slot<D>& each : slots) each.retire(device_);
  }

  const D device_;
  std::mutex mutex_;
  std::vector<device_slot<D>> slots_;
  std::vector<slab_pool> pinned_;  // that used last at the end
  std::size_t last_size_ = 0;
  bool closed_ = false;
};

}  // namespace millrace::detail

template <millrace::device D>
std::shared_ptr<millrace::detail::kept_slots<D>> millrace::slot_store::of(const D& on) {
  const std::lock_guard lock(mutex_);
  for (const held& each : all_) {
    if (!(each.kind == type_id::of<D>())) continue;
    auto found = std::static_pointer_cast<detail::kept_slots<D>>(each.kept);
    if (found->on() == on) return found;
  }
  auto made = std::make_shared<detail::kept_slots<D>>(on);
  all_.push_back(held{type_id::of<D>(), made});
  return made;
}
