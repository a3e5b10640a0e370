// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/device/detail/release_bell.hpp>
#include <millrace/device/detail/slot_ring_base.hpp>
#include <millrace/device/device.hpp>

namespace millrace::detail {

/// The slots of one to_device(): device memory at fixed addresses, each with the host batch that it was filled from and
/// with the events that tell when the copy and its consumers are done.
///
/// A slot is free, taken by the stage, filled and held by its batch, draining until its events are reached, then free
/// again. Shared by the stage and its batches, and by ended_rings when the stage is gone. The destructor frees, and
/// waits for what is pending; ended_rings lets it come when nothing is.
template <device D>
class slot_ring final : public slot_ring_base {
 public:
  slot_ring(const D& on, std::size_t slots, std::size_t slot_bytes)
      : device_(on), slot_bytes_(slot_bytes), slots_(slots) {
    free_.reserve(slots);
    draining_.reserve(slots);  // so that release(), which must not throw, never allocates
    for (std::size_t i = 0; i < slots; ++i) free_.push_back(i);
  }
  ~slot_ring() override {
    for (slot& s : slots_) retire(s);
  }

  // ---- the stage's side, on the loop's thread

  release_bell& bell() noexcept { return bell_; }

  /// A free slot, if there is one: the one that has been free longest. Throws what the device reports. A slot that is
  /// not filled then stays with the ring to its end: the stage takes one only while it goes on.
  std::optional<std::size_t> try_acquire() {
    collect();
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::nullopt;
    const std::size_t i = free_.front();
    free_.erase(free_.begin());
    return i;
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
      if (!done_with(slots_[i])) continue;
      empty(slots_[i]);
      const std::lock_guard lock(mutex_);
      std::size_t at = 0;
      while (draining_[at] != i) ++at;
      draining_.erase(draining_.begin() + static_cast<std::ptrdiff_t>(at));
      free_.push_back(i);
    }
  }

  /// Enqueues the copy of `batch` into the acquired slot `i`. The device must be able to read the batch's memory later.
  /// When it throws the slot is lost to the ring, and is freed with it.
  void fill(std::size_t i, host_batch batch) {
    slot& s = slots_[i];
    const std::size_t n = batch.bytes();
    if (slot_bytes_ == 0) slot_bytes_ = batch.layout().bytes();
    if (n > slot_bytes_) {
      throw configuration_error("a batch of " + std::to_string(n) + " bytes does not fit the device slots of " +
                                std::to_string(slot_bytes_) + " bytes; give to_device a larger .slot_bytes");
    }
    if (!s.copied) s.copied.emplace(device_.make_event());
    if (s.memory == nullptr && slot_bytes_ != 0) {
      s.memory = device_.allocate_device(slot_bytes_);
      s.size = slot_bytes_;
    }
    s.host = std::move(batch);
    s.unfenced = true;
    if (n != 0) device_.copy_to_device(s.memory, s.host.data(), n);
    device_.record(*s.copied);
    s.unfenced = false;
  }

  std::size_t size() const noexcept { return slots_.size(); }

  // ---- the batches' side, on any thread

  void* memory(std::size_t i) const noexcept override { return slots_[i].memory; }
  const host_batch& host(std::size_t i) const noexcept override { return slots_[i].host; }
  void wait(std::size_t i, stream_ref stream) override {
    user& u = find_or_add(slots_[i], stream);
    device_.wait(stream, *slots_[i].copied);
    u.active = true;
  }
  void mark(std::size_t i, stream_ref stream) override {
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
  bool ready(std::size_t i) const override { return device_.query(*slots_[i].copied); }
  void synchronize(std::size_t i) const override { device_.synchronize(*slots_[i].copied); }
  void release(std::size_t i, std::shared_ptr<void> self) noexcept override {
    slot& s = slots_[i];
    std::exception_ptr failed;
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
    {
      const std::lock_guard lock(mutex_);
      if (failed) {
        error_ = failed;  // for the stage: a slot fewer, and a device in trouble
      } else {
        draining_.push_back(i);
      }
    }
    bell_.ring(std::move(self));
  }
  std::string device_name() const override { return device_.name(); }
  bool quiet() noexcept override {
    bool all = true;
    const bool told = attempt([&all, this] {
      for (slot& s : slots_) {
        if (!s.copied) continue;
        fence(s);
        all = all && done_with(s);
      }
    });
    return all || !told;
  }

 private:
  struct user {
    user(stream_ref s, typename D::event_type e) : stream(s), done(std::move(e)) {}
    stream_ref stream;
    typename D::event_type done;
    bool active = false;  // of the batch in the slot now; the event is kept for the next one
  };
  struct slot {
    void* memory = nullptr;
    std::size_t size = 0;
    std::optional<typename D::event_type> copied;
    std::vector<user> users;
    host_batch host;
    std::vector<stream_ref> unmarked;  // use the slot, and could not be marked
    bool unfenced = false;             // a copy may be enqueued that no event tells about
  };

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
  void fence(slot& s) {
    if (!s.unfenced) return;
    device_.record(*s.copied);
    s.unfenced = false;
  }
  bool done_with(const slot& s) const {
    for (const user& u : s.users) {
      if (u.active && !device_.query(u.done)) return false;
    }
    return device_.query(*s.copied);
  }
  static void empty(slot& s) noexcept {
    s.host = host_batch();
    for (user& u : s.users) u.active = false;
    if (s.users.size() > 16) s.users.clear();  // a program that makes a stream for every step would fill it for ever
  }
  // Twice, because an error of earlier work may be reported by whatever call comes first. A device that still fails is
  // broken for good: nothing runs on it any more, so there is nothing to wait for.
  template <class Wait>
  static void try_twice(Wait wait) noexcept {
    if (!attempt(wait)) static_cast<void>(attempt(wait));
  }
  void finish(stream_ref stream) noexcept {
    try_twice([stream, this] { device_.synchronize(stream); });
  }
  void retire(slot& s) noexcept {
    try_twice([&s, this] {
      if (!s.copied) return;
      fence(s);
      if (done_with(s)) return;
      device_.synchronize(*s.copied);
      for (user& u : s.users) {
        if (u.active) device_.synchronize(u.done);
      }
    });
    if (s.memory != nullptr) device_.free_device(s.memory, s.size);
  }
  template <class Action>
  static bool attempt(Action action) noexcept {
    try {
      action();
      return true;
    } catch (...) {
      return false;
    }
  }

  D device_;
  std::size_t slot_bytes_;
  std::vector<slot> slots_;
  release_bell bell_;

  mutable std::mutex mutex_;
  std::vector<std::size_t> free_, draining_;
  std::exception_ptr error_;
};

}  // namespace millrace::detail
