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

#include <millrace/device/detail/kept_slots.hpp>
#include <millrace/device/detail/release_bell.hpp>
#include <millrace/device/detail/slot_ring_base.hpp>
#include <millrace/flow/run_budget.hpp>

namespace millrace::detail {

/// The slots of one to_device(): device memory at fixed addresses, see device_slot.
///
/// A slot is free, taken by the stage, filled and held by its batch, draining until its events are reached, then free
/// again. Its memory comes from `kept`, and goes back there from whoever has it last: the stage, or the batch that a
/// consumer keeps beyond the stage's end. Shared by the stage and its batches.
template <device D>
class slot_ring final : public slot_ring_base {
 public:
  /// `budget`: of the run; null where there is none. `memories`: how often it pays for a slot, 2 where as much host
  /// memory goes with it.
  slot_ring(const D& on, std::shared_ptr<kept_slots<D>> kept, std::size_t slots, std::size_t slot_bytes,
            std::size_t memories, run_budget* budget)
      : device_(on),
        kept_(std::move(kept)),
        slot_bytes_(slot_bytes),
        memories_(memories),
        budget_(budget),
        slots_(slots),
        held_(slots, false),
        use_(slots) {
    free_.reserve(slots);
    draining_.reserve(slots);  // so that release(), which must not throw, never allocates
    for (std::size_t i = 0; i < slots; ++i) free_.push_back(i);
  }

  // ---- the stage's side, on the loop's thread

  release_bell& bell() noexcept { return bell_; }

  /// A free slot, if there is one: the one that has been free longest. A slot without memory gets that of an ended
  /// stage first, which the device may still use. Throws what the device reports. A slot that is taken and not
  /// filled is lost to the ring, so the stage takes one only while it goes on.
  std::optional<std::size_t> try_acquire() {
    collect();
    for (;;) {
      std::size_t i = 0;
      {
        const std::lock_guard lock(mutex_);
        if (free_.empty()) return std::nullopt;
        i = free_.front();
        free_.erase(free_.begin());
      }
      slot& s = slots_[i];
      if (s.memory != nullptr || !kept_->take(slot_bytes_, s)) return i;
      if (s.done(device_)) {
        s.empty();
        return i;
      }
      const std::lock_guard lock(mutex_);
      draining_.push_back(i);
    }
  }

  /// Whether slots wait for the device, so that looking again soon makes sense.
  bool draining() const {
    const std::lock_guard lock(mutex_);
    return !draining_.empty();
  }

  /// Frees the slots that the device is done with. Never blocks.
  void collect() {
    std::vector<std::size_t> look;
    {
      const std::lock_guard lock(mutex_);
      if (error_) std::rethrow_exception(error_);
      look = draining_;
    }
    for (const std::size_t i : look) {
      if (!slots_[i].done(device_)) continue;
      slots_[i].empty();
      const std::lock_guard lock(mutex_);
      std::size_t at = 0;
      while (draining_[at] != i) ++at;
      draining_.erase(draining_.begin() + static_cast<std::ptrdiff_t>(at));
      free_.push_back(i);
    }
  }

  /// Enqueues the copy of `batch` into the acquired slot `i`, which is its batch's then. The device must be able to
  /// read the batch's memory later.
  /// When it throws the slot is lost to the ring until that ends.
  void fill(std::size_t i, host_batch batch) {
    slot& s = slots_[i];
    const std::size_t n = batch.bytes();
    const std::size_t room = makes_fields(batch) ? batch.layout().device_bytes() : n;
    if (slot_bytes_ == 0) slot_bytes_ = batch.layout().device_bytes();
    if (s.memory != nullptr && s.size < room) s.retire(device_);  // it has outgrown it
    if (s.memory == nullptr && room != 0) {
      if (room > slot_bytes_) grow(room);
      kept_->provide(slot_bytes_, s);
    }
    if (!s.copied) s.copied.emplace(device_.make_event());
    s.host = std::move(batch);
    s.unfenced = true;
    if (n != 0) device_.copy_to_device(s.memory, s.host.data(), n);
    device_.record(*s.copied);
    s.unfenced = false;
    use_[i] = use();
    const std::lock_guard lock(mutex_);
    held_[i] = true;
  }

  /// Whether the batch has fields that decode() is to make.
  static bool makes_fields(const host_batch& batch) noexcept {
    return batch && batch.layout().device_bytes() != batch.layout().bytes();
  }
  /// Makes them, in the slot of a batch that was filled, before anybody else has it. Takes its time: on any thread.
  void decode(std::size_t i) {
    slot& s = slots_[i];
    s.unfenced = true;
    try {
      decode_in_slot<D>(device_, s.host, s.memory, s.decoding, s.pixels);
    } catch (...) {
      device_.record(*s.copied);  // a part of it may be on its way
      s.unfenced = false;
      throw;
    }
    device_.record(*s.copied);
    s.unfenced = false;
  }

  /// The stage has ended: gives back every slot that no batch holds. The others follow as their batches are released.
  /// Waits for nothing.
  void end() noexcept {
    std::vector<bool> held;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      held.swap(held_);
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!held[i]) give_back(std::move(slots_[i]));
    }
  }

  std::size_t size() const noexcept { return slots_.size(); }

  // ---- the batches' side, on any thread

  void* memory(std::size_t i) noexcept override {
    use_[i].looked = true;
    return slots_[i].memory;
  }
  const host_batch& host(std::size_t i) const noexcept override { return slots_[i].host; }
  void wait(std::size_t i, stream_ref stream) override {
    user& u = find_or_add(slots_[i], stream);
    device_.wait(stream, *slots_[i].copied);
    use_[i].waited = true;
    u.active = true;
  }
  void mark(std::size_t i, stream_ref stream) override {
    check_waited(i);
    slot& s = slots_[i];
    try {
      find_or_add(s, stream).active = true;  // recorded by release(), too
      device_.record(find_or_add(s, stream).done, stream);
    } catch (const configuration_error&) {
      throw;  // of another runtime: it cannot have used the slot
    } catch (...) {
      s.unmarked.push_back(stream);  // it may use the slot: release() tries again
      throw;
    }
  }
  bool ready(std::size_t i) override {
    const bool done = device_.query(*slots_[i].copied);
    if (done) use_[i].waited = true;
    return done;
  }
  void synchronize(std::size_t i) override {
    device_.synchronize(*slots_[i].copied);
    use_[i].waited = true;
  }
  void release(std::size_t i, std::shared_ptr<void> self) noexcept override {
    slot& s = slots_[i];
    std::exception_ptr failed;
    try {
      check_waited(i);
    } catch (...) {
      failed = std::current_exception();
    }
    // The streams may be gone once this returns: one that cannot be marked is waited for now.
    for (const stream_ref stream : s.unmarked) {
      try {
        find_or_add(s, stream).active = true;
      } catch (...) {
        failed = std::current_exception();
        finish(stream);
      }
    }
    s.unmarked.clear();
    for (user& u : s.users) {
      if (!u.active) continue;
      try {
        device_.record(u.done, u.stream);
      } catch (...) {
        failed = std::current_exception();
        finish(u.stream);
        u.active = false;
      }
    }
    bool stage_gone = false;
    {
      const std::lock_guard lock(mutex_);
      stage_gone = ended_;
      if (!stage_gone) held_[i] = false;
      if (failed) {
        error_ = failed;  // for the stage: a slot fewer, and a device in trouble
      } else if (!stage_gone) {
        draining_.push_back(i);
      }
    }
    if (stage_gone) return give_back(std::move(s));
    bell_.ring(std::move(self));
  }
  std::string device_name() const override { return device_.name(); }

 private:
  using slot = device_slot<D>;
  using user = typename slot::user;
  /// What the consumer has done with a batch.
  struct use {
    bool looked = false;  // has its address in the device's memory
    bool waited = false;  // for the copy: a stream, or the host
  };

  /// In debug builds: a batch that was used without waiting for its copy is misuse, on whatever stream that was. Not so
  /// on a device like host_device, whose memory is the host's.
  void check_waited([[maybe_unused]] std::size_t i) const {
#ifndef NDEBUG
    if (!copies_any_memory<D> && use_[i].looked && !use_[i].waited) {
      misused(
          "a batch was used without waiting for its copy: call its wait(stream) before the work that reads field(), or "
          "synchronize() where the host waits");
    }
#endif
  }

  /// The slots that get memory from now on have at least `n` bytes.
  void grow(std::size_t n) {
    const std::size_t half_as_much_again = slot_bytes_ + slot_bytes_ / 2;
    for (const std::size_t size : {n < half_as_much_again ? half_as_much_again : n, n}) {
      const std::size_t more = (size - slot_bytes_) * slots_.size() * memories_;
      if (budget_ != nullptr && !budget_->take(more)) continue;
      slot_bytes_ = size;
      return;
    }
    throw configuration_error("to_device: a batch of " + std::to_string(n) +
                              " bytes does not fit the device slots of " + std::to_string(slot_bytes_) +
                              " bytes, and the budget leaves too little for " + std::to_string(slots_.size()) +
                              " larger ones: raise it, or have fewer .slots");
  }
  user& find_or_add(slot& s, stream_ref stream) {
    for (user& u : s.users) {
      if (u.stream == stream) return u;
    }
    user made(stream, device_.make_event());
    // A stream that cannot be fenced (another GPU's) is refused before its first use.
    device_.record(made.done, stream);
    s.users.push_back(std::move(made));
    return s.users.back();
  }
  void finish(stream_ref stream) noexcept {
    static_cast<void>(attempt_twice([stream, this] { device_.synchronize(stream); }));
  }
  void give_back(slot&& s) noexcept {
    if (attempt_twice([&s, this] { s.fence(device_); })) {
      kept_->keep(std::move(s));
    } else {
      s.retire(device_);
    }
  }

  D device_;
  const std::shared_ptr<kept_slots<D>> kept_;
  std::size_t slot_bytes_;  // of the slots that get memory from now on
  const std::size_t memories_;
  run_budget* const budget_;
  std::vector<slot> slots_;
  release_bell bell_;

  mutable std::mutex mutex_;
  std::vector<std::size_t> free_, draining_;
  std::vector<bool> held_;  // by a batch
  std::vector<use> use_;    // each the batch's, while it has the slot
  bool ended_ = false;
  std::exception_ptr error_;
};

}  // namespace millrace::detail
