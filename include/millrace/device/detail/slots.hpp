// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/detail/slot_device.hpp>
#include <millrace/device/slot_store.hpp>
#include <millrace/sync/remote_waiters.hpp>

// The slots of to_device(): device_slot (memory, events and a batch; in batch.hpp), slot_pool (the slots of one stage)
// and slot_cache (what no stage uses now; in slot_store.hpp).

namespace millrace::inline MILLRACE_ABI::detail {

/// True if the batch has fields that device_slot::decode() is to make.
inline bool has_images(const host_batch& batch) noexcept {
  return batch && batch.layout().device_bytes() != batch.layout().bytes();
}

/// The slots of one to_device(): device memory at fixed addresses. Shared by the stage and its batches.
///
/// A slot is free, acquired by the stage, filled and held by its batch, draining until its events are reached, then
/// free again. Its memory comes from the cache, and goes back there from its last user: the stage, or the batch that a
/// consumer keeps beyond the stage's end.
class slot_pool final {
 public:
  /// `slots`: how many, empty at first. `memories`: how often the run's budget pays for the bytes of a slot, 2 if as
  /// much host memory goes with it. `limit`: see consumer_waits(); zero and less: none.
  slot_pool(const coroutine_context& here, std::shared_ptr<slot_device> on, std::size_t slots,
            std::shared_ptr<slot_cache> cache, std::size_t slot_bytes, std::size_t memories, duration limit);

  // ---- the stage's side, on the loop's thread

  /// Waits for a slot that is free, and returns its number: the one that has been free longest. A slot without memory
  /// gets that of an ended stage first, which the device may still use. While slots are draining their events are
  /// queried, at first after 50 us, then after twice as long each time, up to 1 ms; while the consumer holds all, a
  /// release wakes the waiter. One waiter at a time. Throws what the device reports, and configuration_error when the
  /// consumer's limit is over. A slot that is acquired and not filled is lost to the pool, so the stage acquires one
  /// only while it continues.
  MILLRACE_COROUTINE task<std::size_t> acquire();

  /// Enqueues the copy of `batch` into the acquired slot `i`, which belongs to its batch from then on. The device must
  /// be able to read the batch's memory later. If it throws, the slot is lost to the pool until the stage ends.
  device_slot& fill(std::size_t i, host_batch batch);

  /// The next stage begins to wait for a batch, or has got one. A consumer that holds every slot while it waits gets an
  /// error after the limit, as only time can tell whether a slot comes back: another thread may release one at any
  /// moment. The time runs while the next stage waits, no slot is free or draining, and, in a run(), the training
  /// thread waits too: what waits before that is the run's prefetch, and a training thread may take hours for a step.
  void consumer_waits(bool now) noexcept;

  /// The stage has ended: gives back every slot that no batch holds. The others follow as their batches are released.
  /// Waits for nothing.
  void end() noexcept;

  // ---- the slots' side, on any thread

  /// The batch of `s`, which owned this pool, is gone. `failed`: why the slot cannot be used again, for the stage.
  void returned(device_slot& s, std::exception_ptr failed) noexcept;

 private:
  std::optional<std::size_t> try_acquire();
  void collect();
  void note_wait() noexcept;
  time_point held_until(time_point limit_over) const;
  void grow(std::size_t n);
  void give_back(std::shared_ptr<device_slot> s) noexcept;

  executor& executor_;  // until end(), as are the run and the stage
  stage_record* const stage_;
  run_context& run_;
  const std::shared_ptr<slot_device> on_;
  const std::shared_ptr<slot_cache> cache_;
  std::size_t slot_bytes_;  // of the slots that get memory from now on
  const std::size_t memories_;
  const duration limit_;
  bool consumer_waits_ = false;
  bool all_held_ = false;  // by the consumer, while a slot is waited for
  std::vector<std::shared_ptr<device_slot>> slots_;

  std::mutex mutex_;
  std::vector<std::size_t> free_, draining_;
  std::vector<std::size_t> held_;  // by a batch: 1, or 0
  std::uint64_t changes_ = 0;      // that a waiter must look at
  remote_waiters waiters_;         // for one
  bool ended_ = false;
  std::exception_ptr error_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/detail/slots.ipp>
#endif
