// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/coro/runtime_parts.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/device/detail/batch_stager.hpp>
#include <millrace/device/detail/slot_patience.hpp>
#include <millrace/device/detail/slot_ring.hpp>
#include <millrace/device/device_batch.hpp>
#include <millrace/device/slot_store.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/sync/channel.hpp>

namespace millrace {

/// See to_device().
struct to_device_options {
  std::size_t slots = 3;       ///< batches in device memory at once, held by the consumer or ahead of it; at least 1
  std::size_t slot_bytes = 0;  ///< device memory of one slot; 0: as much as the first batch's layout needs
  std::size_t samples = 0;     ///< most samples of a batch made of items; 0: as many as the largest so far has
  pool_ref on = nullptr;       ///< where batches are laid out and staged; none: the runtime's pool
  /// A consumer that keeps every slot and waits this long for one more batch gets an exception. 0: it waits for ever.
  duration slot_wait = std::chrono::seconds(30);
};

namespace detail {

/// While the device is busy, its events are queried at these intervals: the first one first, twice as long each time.
inline constexpr duration first_look = std::chrono::microseconds(50);
inline constexpr duration last_look = std::chrono::milliseconds(1);

/// A free slot, as soon as there is one.
template <device D>
task<std::size_t> acquire_slot(slot_ring<D>& ring, slot_patience& patience) {
  duration pause = first_look;
  for (;;) {
    ring.bell().muffle();
    const std::optional<std::size_t> i = ring.try_acquire();
    const bool kept = !i && !ring.draining();
    patience.kept(kept);
    if (i) co_return *i;
    std::optional<duration> look_again;  // not at all while every slot is in a consumer's hands: it will ring
    if (kept) {
      patience.check(ring.size());
    } else {
      look_again = pause;
    }
    pause = pause * 2 < last_look ? pause * 2 : last_look;
    co_await ring.bell().wait(look_again);
  }
}

/// Gives the stage's slots back when the stage ends.
template <device D>
class slot_ring_user {
 public:
  explicit slot_ring_user(std::shared_ptr<slot_ring<D>> ring) noexcept : ring_(std::move(ring)) {}
  slot_ring_user(const slot_ring_user&) = delete;
  slot_ring_user& operator=(const slot_ring_user&) = delete;
  ~slot_ring_user() { ring_->end(); }

  const std::shared_ptr<slot_ring<D>>& ring() const noexcept { return ring_; }

 private:
  std::shared_ptr<slot_ring<D>> ring_;
};

/// The slots between pipelines, on a loop without a runtime.
class loop_slots final : public executor_service {
 public:
  slot_store store;
};
inline slot_store& slot_store_of(executor& ex) {
  if (ex.runtime() != nullptr) return ex.runtime()->device_slots();
  return ex.service<loop_slots>().store;
}

/// A batch whose copy is on its way becomes one whose images are. Owns what it touches, as it may outlive the stage.
template <device D, class Batch>
class decoding_job {
 public:
  decoding_job(std::shared_ptr<slot_ring<D>> ring, std::size_t slot, Batch batch)
      : ring_(std::move(ring)), slot_(slot), batch_(std::move(batch)) {}
  Batch operator()() {
    ring_->decode(slot_);
    return std::move(batch_);
  }

 private:
  std::shared_ptr<slot_ring<D>> ring_;
  std::size_t slot_;
  Batch batch_;
};

/// Fills slots ahead of the consumer until the source ends or something fails.
template <device D, class Item, class Stager, class Batch>
task<void> fill_slots(async_generator<Item>& source, const std::shared_ptr<slot_ring<D>>& ring,
                      std::shared_ptr<Stager> stager, cpu_pool::share on, slot_patience& patience,
                      channel<Batch>& ready) {
  std::exception_ptr failed;
  try {
    for (;;) {
      std::optional<Item> item = co_await source.next();
      if (!item) break;  // before a slot is waited for: the end needs none
      const std::size_t slot = co_await acquire_slot<D>(*ring, patience);
      staging_job<Stager, Item> job(stager, std::move(*item));
      item.reset();
      host_batch staged;
      if (on && job.computes()) {
        staged = co_await on.run(std::move(job));
      } else {
        staged = job();
      }
      const bool decodes = slot_ring<D>::makes_fields(staged);
      ring->fill(slot, std::move(staged));
      Batch filled(ring, slot);
      if (decodes) {
        decoding_job<D, Batch> decoding(ring, slot, std::move(filled));
        if (on) {
          filled = co_await on.run(std::move(decoding));
        } else {
          filled = decoding();
        }
      }
      ready.try_send(std::move(filled));
    }
  } catch (...) {
    failed = std::current_exception();
  }
  ready.close(failed);
}

/// What a device that keeps images has to say once, in the runtime's log.
template <device D>
void say_remark([[maybe_unused]] const executor& ex, [[maybe_unused]] const D& on) {
  if constexpr (requires { on.remark(); }) {
    const std::string line = on.remark();
    if (!line.empty()) say(ex, line);
  }
}

/// What a slot stands for: items are laid out in as much page-locked memory, from where the copy is; the memory of a
/// host_batch is in the bound of the stage that made it.
template <class Item>
inline constexpr std::size_t memories_of_slot = std::is_same_v<Item, host_batch> ? 1 : 2;

template <device D, class Item, class Collate>
async_generator<device_batch> to_device_stream(async_generator<Item> source, D on, to_device_options with,
                                               cpu_pool::share pool, Collate how) {
  executor& ex = co_await this_executor();
  stage_record* const account = co_await this_stage();
  if (with.slots == 0) with.slots = 1;
  if (!pool && ex.runtime() != nullptr) pool = cpu_pool::share(ex.runtime()->pool());
  // Goes after everything that releases slots.
  const std::shared_ptr<kept_slots<D>> kept = slot_store_of(ex).of(on);
  const slot_ring_user<D> last(std::make_shared<slot_ring<D>>(on, kept, with.slots, with.slot_bytes,
                                                              memories_of_slot<Item>, run_budget::of(account)));
  slot_patience patience(ex, with.slot_wait, account, last.ring()->bell());
  using stager_type = batch_stager<D, Collate>;
  auto stager = std::make_shared<stager_type>(kept, with.samples, std::move(how));
  channel<device_batch> ready(with.slots);
  task<void> filling =
      fill_slots<D, Item, stager_type>(source, last.ring(), std::move(stager), std::move(pool), patience, ready);
  spawned<void> ahead(ex, std::move(filling), account);
  for (;;) {
    patience.asked(ready.size() == 0);
    auto batch = co_await ready.receive();
    patience.asked(false);
    say_remark(ex, on);
    if (!batch) co_return;
    co_yield give(*batch);
  }
}

}  // namespace detail

/// What to_device() returns.
template <device D, class Collate>
class to_device_stage : public detail::library_stage {
 public:
  to_device_stage(D on, const to_device_options& with, Collate how)
      : device_(std::move(on)), with_(with), how_(std::move(how)) {
    if (with_.on != nullptr) pool_ = cpu_pool::share(*with_.on);
  }

  /// For the compiler's message: why it does not take items of type T.
  template <class T>
  static constexpr void explain() {
    static_assert(detail::never_v<T>, "to_device copies batches: put batch(n) or fill_batches(pool, f) before it");
  }

  stream<device_batch> operator()(async_generator<host_batch> source) && {
    return made_of<host_batch>(std::move(source));
  }
  template <class T>
  stream<device_batch> operator()(async_generator<std::vector<T>> source) && {
    return laid_out<T>(std::move(source));
  }
  template <class T>
  stream<device_batch> operator()(async_generator<marked_batch<T>> source) && {
    return laid_out<T>(std::move(source));
  }

 private:
  template <class T, class Items>
  stream<device_batch> laid_out(async_generator<Items> source) {
    if constexpr (requires(const Collate& how, const T& item, sample_writer& out) { how(item, out); }) {
      return made_of<Items>(std::move(source));
    } else {
      static_assert(
          detail::never_v<T>,
          "the function given to to_device lays one item out: it must be callable, without being changed, with "
          "(const item&, millrace::sample_writer&)");
      return stream<device_batch>();
    }
  }
  template <class Item>
  stream<device_batch> made_of(async_generator<Item> source) {
    std::size_t kept = 0;
    if constexpr (requires { device_.keeps(); }) kept = device_.keeps();
    stream<device_batch> made =
        stream<device_batch>(detail::to_device_stream<D, Item, Collate>(std::move(source), std::move(device_), with_,
                                                                        std::move(pool_), std::move(how_)))
            .named("to_device", "raise its .slots")
            .bounded(with_.slots, detail::memories_of_slot<Item> * with_.slots * with_.slot_bytes);
    if (kept == 0) return made;
    return std::move(made).bounded("resident images", 0, kept);
  }

  D device_;
  to_device_options with_;
  cpu_pool::share pool_;  // of with_.on, which may have ended when the pipeline runs
  Collate how_;
};

/// Copies batches into the memory of a device, ahead of the consumer: from a stream of host_batch, or of std::vector<T>
/// where T has a collate() (or `how(const T&, sample_writer&)` is passed). Yields device_batch as soon as its copy is
/// enqueued; the consumer's stream waits for it, the host never does.
///
/// `target` is a cuda::stream for the copies, or any `device` (host_device on a machine without one).
///
/// Slots: a ring of `slots` pieces of device memory at fixed addresses, all of them filled ahead. They belong to the
/// runtime: a run takes over the slots that an earlier one on that device has left, once the device is done with them,
/// and allocates only those that are missing. A batch that is larger than its slot gets a larger one, at least half as
/// large again, and so do the slots after it: within what the run's budget leaves, where there is one. A slot is used
/// again when the copy and the streams of its batch's consumers are past their events. While the loop needs a slot, it
/// queries the events every 50 us to 1 ms; no thread waits. The end of the source needs no slot.
///
/// Keeping batches: a consumer may, and may drop them on another thread. One that keeps all slots and asks for another
/// batch gets a configuration_error after `slot_wait`, since nothing else frees a slot then. (In a run() the time
/// counts while the training thread waits, not while it is busy.)
///
/// Images that are decoded only here (undecoded_image): they are so behind the copy of their batch, on the GPU where
/// `target` is a cuda::nvjpeg, else on the host, by the same pool; one batch at a time. A cuda::resident_images keeps
/// them, within its bytes, which are in the run's budget as slots are, and decodes only what it has not got.
///
/// Host memory: a host_batch from a batch_pool of this device is copied from where it lies, and dropped with the slot's
/// next use. Other batches and items are first copied to page-locked memory of the runtime, on the pool `on`, or else
/// on the runtime's (on a bare loop on its thread: about 10 GB/s).
///
/// Bound: `slots` batches: slots x slot_bytes on the device and, of items, as much page-locked host memory, both in the
/// run's budget, also when they grow; one more item or host_batch waits for a slot. The memory of a host_batch is that
/// of the stage that made it; the first two or three that are not page-locked are copied, beyond the bound.
///
/// Cancellation and the end: dropping the stage, mid-copy too, waits for nothing. Its slots are left to the runtime (on
/// a bare loop to the loop), which waits for the device before it frees them, at its own end. Batches that the consumer
/// has stay valid. Errors: those of the source and of the device, after the batches before them; configuration_error
/// for a batch that is larger than its slot where the budget leaves too little for a larger one.
template <class Target, class Collate = detail::collate_found>
auto to_device(const Target& target, const to_device_options& with = {}, Collate how = Collate()) {
  auto on = detail::device_of(target);
  if constexpr (std::is_same_v<decltype(on), detail::refused>) {
    return on;
  } else {
    return to_device_stage<decltype(on), Collate>(std::move(on), with, std::move(how));
  }
}

}  // namespace millrace
