// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/batch_pool.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/slot_store.hpp>
#include <millrace/device/undecoded_image.hpp>

// The slots of to_device(), in three classes: device_slot_on (memory, events and a batch), slot_pool (the slots of one
// stage) and slot_cache (what no stage uses now; in slot_store.hpp).

namespace millrace::inline MILLRACE_ABI::detail {

/// What a device that decodes keeps for one slot, from batch to batch: its `decoding`. Empty for other devices.
struct no_decoding {};
template <class D>
struct decoding_of {
  using type = no_decoding;
};
template <class D>
requires requires { typename D::decoding; }
struct decoding_of<D> {
  using type = typename D::decoding;
};

/// An image of a batch.
struct image_to_decode {
  const undecoded_image* image = nullptr;
  std::uint8_t* place = nullptr;  ///< where its pixels go, on the device
  where from;                     ///< for errors
  bool taken = false;             ///< by the device; the host decodes the others
};

/// The images of a batch whose memory on the device is `memory`. Throws configuration_error for a batch with several
/// such fields.
std::vector<image_to_decode> find_images(const host_batch& batch, void* memory);

/// Whether the batch has fields that device_slot::decode() is to make.
inline bool has_images(const host_batch& batch) noexcept {
  return batch && batch.layout().device_bytes() != batch.layout().bytes();
}

/// Tries `action` twice, because the first call may report an error of earlier work. Returns whether one of them
/// succeeded: if not, the device is broken for good, and nothing runs on it any more.
template <class Action>
bool attempt_twice(Action action) noexcept {
  for (int i = 0; i < 2; ++i) {
    try {
      action();
      return true;
    } catch (...) {
    }
  }
  return false;
}

/// The slots of one to_device(): device memory at fixed addresses. Shared by the stage and its batches.
///
/// A slot is free, acquired by the stage, filled and held by its batch, draining until its events are reached, then
/// free again. Its memory comes from the cache, and goes back there from its last user: the stage, or the batch that a
/// consumer keeps beyond the stage's end.
class slot_pool final : private remote_node {
 public:
  class acquiring;
  using awaitable = awaitable_of<acquiring, slot_pool>;

  /// `slots`: empty ones that use `device`. `memories`: how often the run's budget pays for the bytes of a slot, 2 if
  /// as much host memory goes with it. `limit`: see consumer_waits(); zero and less: none.
  slot_pool(const coroutine_context& here, std::shared_ptr<const void> device,
            std::vector<std::shared_ptr<device_slot>> slots, std::shared_ptr<slot_cache> cache, std::size_t slot_bytes,
            std::size_t memories, duration limit);

  // ---- the stage's side, on the loop's thread

  /// Waits for a slot that is free, and returns its number: the one that has been free longest. A slot without memory
  /// gets that of an ended stage first, which the device may still use. While slots are draining their events are
  /// queried, at first after 50 us, then after twice as long each time, up to 1 ms; while the consumer holds all, a
  /// release wakes the waiter. One waiter at a time. Throws what the device reports, and configuration_error when the
  /// consumer's limit is over. A slot that is acquired and not filled is lost to the pool, so the stage acquires one
  /// only while it continues.
  awaitable acquire() noexcept { return awaitable(*this); }

  /// Enqueues the copy of `batch` into the acquired slot `i`, which belongs to its batch from then on. The device must
  /// be able to read the batch's memory later. If it throws, the slot is lost to the pool until the stage ends.
  device_slot& fill(std::size_t i, host_batch batch);

  /// Whether the next stage waits for a batch now. A consumer that holds every slot while it waits gets an error after
  /// the limit, as only time can tell whether a slot comes back: another thread may release one at any moment. The
  /// time runs while the next stage waits, no slot is free or draining, and, in a run(), the training thread waits too:
  /// what waits before that is the run's prefetch, and a training thread may take hours for a step.
  void consumer_waits(bool now);

  /// The stage has ended: gives back every slot that no batch holds. The others follow as their batches are released.
  /// Waits for nothing.
  void end() noexcept;

  // ---- the slots' side, on any thread

  /// The batch of `s` is gone. `failed`: why the slot cannot be used again, for the stage. `owner` owns the pool.
  void returned(device_slot& s, std::exception_ptr failed, std::shared_ptr<void> owner) noexcept;

 private:
  static constexpr duration first_look = std::chrono::microseconds(50);
  static constexpr duration last_look = std::chrono::milliseconds(1);

  /// A message from returned() on another thread.
  MILLRACE_INLINE void run() noexcept override;
  std::optional<std::size_t> try_acquire();
  void collect();
  void look(acquiring& waiter, bool again) noexcept;
  void note_wait() noexcept;
  void arm(acquiring& waiter);
  void enter(acquiring& waiter) noexcept;
  void leave() noexcept;
  void grow(std::size_t n);
  void give_back(std::shared_ptr<device_slot> s) noexcept;

  executor& executor_;  // until end(), as are the run and the stage
  stage_record* const stage_;
  run_context& run_;
  const std::shared_ptr<const void> device_;
  const std::shared_ptr<slot_cache> cache_;
  std::size_t slot_bytes_;  // of the slots that get memory from now on
  const std::size_t memories_;
  const duration limit_;
  bool consumer_waits_ = false;
  std::vector<std::shared_ptr<device_slot>> slots_;

  std::mutex mutex_;
  std::vector<std::size_t> free_, draining_;
  std::vector<std::size_t> held_;  // by a batch: 1, or 0
  bool released_ = false;  // a batch, since the slots were looked at
  bool ended_ = false;
  std::exception_ptr error_;
  acquiring* waiter_ = nullptr;
  std::shared_ptr<void> owner_;  // while a message is on its way
  bool posted_ = false;
  bool announced_ = false;  // to the executor: the message outlives the waiter
};

/// The await of a slot. Dropping it is safe while a message is on its way: that keeps the pool alive, and is announced
/// to the executor as an operation to drain.
class slot_pool::acquiring final : public timer_node, private waiting_awaiter {
 public:
  acquiring(slot_pool& pool, promise_base& promise) noexcept : waiting_awaiter(promise), pool_(pool) {}
  ~acquiring() override {
    home().remove_timer(*this);
    pool_.leave();
  }
  bool await_ready() noexcept;
  void await_suspend(std::coroutine_handle<> handle) noexcept {
    suspend(handle);
    pool_.enter(*this);
  }
  std::size_t await_resume() const {
    if (error_) std::rethrow_exception(error_);
    return *slot_;
  }

 private:
  friend class slot_pool;
  void fire() noexcept override { pool_.look(*this, true); }
  bool over() const noexcept { return slot_ || error_; }

  slot_pool& pool_;
  duration pause_ = first_look;
  bool all_held_ = false;          // by the consumer, when it was looked last
  static constexpr time_point never = time_point::max();
  time_point due_ = never;  // when the consumer's limit is over
  std::optional<std::size_t> slot_;
  std::exception_ptr error_;
};

/// A slot on a device of type D.
template <device D>
class device_slot_on final : public device_slot {
 public:
  explicit device_slot_on(const D* on) noexcept : on_(on) {}

  void use_device(const void* on) noexcept override { on_ = static_cast<const D*>(on); }
  void allocate(std::size_t size) override {
    memory_ = on_->allocate_device(size);
    size_ = size;
  }
  bool done() const override {
    for (const user& u : users_) {
      if (u.active && !on_->query(u.done)) return false;
    }
    return copied();
  }
  bool copied() const override { return !copied_ || on_->query(*copied_); }
  void clear() noexcept override;
  bool fence() noexcept override {
    return attempt_twice([this] {
      if (unfenced_) record_copy();
    });
  }
  void retire() noexcept override;

  void fill(host_batch batch) override;
  void decode() override;

  std::uint32_t number() const noexcept override { return number_; }
  const host_batch& host() const noexcept override { return host_; }
  void wait(stream_ref stream) override {
    user& u = find_or_add(stream);
    on_->wait(stream, *copied_);
    waited_ = true;
    u.active = true;
  }
  void mark(stream_ref stream) override;
  bool ready() override {
    const bool done = on_->query(*copied_);
    if (done) waited_ = true;
    return done;
  }
  void synchronize() override {
    on_->synchronize(*copied_);
    waited_ = true;
  }
  void release(std::shared_ptr<void> owner) noexcept override;
  std::string device_name() const override { return on_->name(); }

 private:
  using event = typename D::event_type;
  struct user {
    user(stream_ref s, event e) : stream(s), done(std::move(e)) {}
    stream_ref stream;
    event done;
    bool active = false;  // of the batch in the slot now; the event is kept for the next one
  };

  user& find_or_add(stream_ref stream);
  void check_waited() const;
  void record_copy() {
    on_->record(*copied_);
    unfenced_ = false;
  }
  void finish(stream_ref stream) noexcept {
    static_cast<void>(attempt_twice([stream, this] { on_->synchronize(stream); }));
  }

  const D* on_;
  std::optional<event> copied_;
  std::vector<user> users_;
  host_batch host_;
  std::vector<stream_ref> unmarked_;  // use the slot, and could not be marked
  std::vector<pixel_buffer> pixels_;  // decoded on the host, on their way
  typename decoding_of<D>::type decoding_;
  bool unfenced_ = false;     // a copy may be enqueued that is after the event
  std::uint32_t number_ = 0;  // of the batch
  bool waited_ = false;       // for its copy: a stream, or the host
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

template <device D>
void device_slot_on<D>::clear() noexcept {
  host_ = host_batch();
  pixels_.clear();
  for (user& u : users_) u.active = false;
  if (users_.size() > 16) users_.clear();  // a program that makes a stream for every step would fill it without end
}

template <device D>
void device_slot_on<D>::retire() noexcept {
  static_cast<void>(attempt_twice([this] {
    if (done()) return;
    if (copied_) on_->synchronize(*copied_);
    for (user& u : users_) {
      if (u.active) on_->synchronize(u.done);
    }
  }));
  decoding_ = typename decoding_of<D>::type();
  if (memory_ != nullptr) on_->free_device(std::exchange(memory_, nullptr), size_);
  clear();
}

template <device D>
void device_slot_on<D>::fill(host_batch batch) {
  if (!copied_) copied_.emplace(on_->make_event());
  host_ = std::move(batch);
  unfenced_ = true;
  if (const std::size_t n = host_.bytes(); n != 0) on_->copy_to_device(memory_, host_.data(), n);
  record_copy();
  number_ = address_looks::next();
  waited_ = false;
}

template <device D>
void device_slot_on<D>::decode() {
  unfenced_ = true;
  try {
    std::vector<image_to_decode> found = find_images(host_, memory_);
    if constexpr (requires { typename D::decoding; }) on_->decode(found, decoding_);
    for (const image_to_decode& i : found) {
      if (i.taken) continue;
      pixel_buffer pixels = i.image->on_host->pixels(i.image->data, i.from);
      if (pixels.size() != i.image->pixel_bytes()) throw decode_error("the image has changed its size", i.from);
      on_->copy_to_device(i.place, pixels.data(), pixels.size());
      pixels_.push_back(std::move(pixels));  // until the event after its copy is reached
    }
    if constexpr (requires { on_->keep(found, decoding_); }) on_->keep(found, decoding_);
  } catch (...) {
    record_copy();  // a part of it may be on its way
    throw;
  }
  record_copy();
}

template <device D>
typename device_slot_on<D>::user& device_slot_on<D>::find_or_add(stream_ref stream) {
  for (user& u : users_) {
    if (u.stream == stream) return u;
  }
  user made(stream, on_->make_event());
  // A stream that cannot be fenced (another GPU's) is refused before its first use.
  on_->record(made.done, stream);
  users_.push_back(std::move(made));
  return users_.back();
}

/// In debug builds: a batch that was used without waiting for its copy is misuse, on whatever stream that was. Not so
/// on a device like host_device, whose memory is the host's.
template <device D>
void device_slot_on<D>::check_waited() const {
#ifndef NDEBUG
  if (!copies_any_memory<D> && !waited_ && address_looks::noted(number_)) {
    misused(
        "a batch was used without waiting for its copy: call its wait(stream) before the work that reads field(), or "
        "synchronize() where the host waits");
  }
#endif
}

template <device D>
void device_slot_on<D>::mark(stream_ref stream) {
  check_waited();
  try {
    find_or_add(stream).active = true;  // recorded by release(), too
    on_->record(find_or_add(stream).done, stream);
  } catch (const configuration_error&) {
    throw;  // of another runtime: it cannot have used the slot
  } catch (...) {
    try {
      unmarked_.push_back(stream);  // it may use the slot: release() tries again
    } catch (...) {
      finish(stream);
    }
    throw;
  }
}

template <device D>
void device_slot_on<D>::release(std::shared_ptr<void> owner) noexcept {
  std::exception_ptr failed;
  try {
    check_waited();
  } catch (...) {
    failed = std::current_exception();
  }
  // The streams may be gone once this returns: one that cannot be marked is waited for now.
  for (const stream_ref stream : unmarked_) {
    try {
      find_or_add(stream).active = true;
    } catch (...) {
      failed = std::current_exception();
      finish(stream);
    }
  }
  unmarked_.clear();
  for (user& u : users_) {
    if (!u.active) continue;
    try {
      on_->record(u.done, u.stream);
    } catch (...) {
      failed = std::current_exception();
      finish(u.stream);
      u.active = false;
    }
  }
  pool_->returned(*this, std::move(failed), std::move(owner));  // another user may have the slot now, or it is gone
}

}  // namespace millrace::detail

template <millrace::device D>
std::shared_ptr<millrace::detail::slot_cache> millrace::slot_store::of(const D& on) {
  const std::lock_guard lock(mutex_);
  for (const held& each : all_) {
    if (each.kind == type_id::of<D>() && *static_cast<const D*>(each.kept->device()) == on) return each.kept;
  }
  auto made = std::make_shared<detail::slot_cache>(std::make_shared<const D>(on),
                                                   std::make_shared<detail::pinned_slab_source<D>>(on));
  all_.push_back(held{type_id::of<D>(), made});
  return made;
}

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/detail/slots.ipp>
#endif
