// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/device/detail/slots.hpp>
#include <millrace/device/slot_store.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/sync/channel.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Turns items and batches into batches in memory that the device reads directly.
template <class Collate>
class batch_stager {
 public:
  batch_stager(std::shared_ptr<slot_cache> memory, std::size_t samples, Collate how)
      : memory_(std::move(memory)), samples_(samples), how_(std::move(how)) {}

  /// Whether it has to be copied or laid out, which is work for a pool.
  bool computes(const host_batch& batch) const noexcept {
    return !batch.pinned() && batch.bytes() != 0 && !memory_->device().copies_any_memory();
  }
  template <class T>
  bool computes(const T&) const noexcept {
    return true;
  }

  host_batch operator()(host_batch batch) {
    if (!computes(batch)) return batch;
    if (!slabs_ || slabs_->slab_bytes() < batch.bytes()) slabs_.emplace(memory_->pinned(batch.layout().bytes()));
    batch.move_to(slabs_->acquire());
    batch.prefer(*slabs_);
    return batch;
  }
  template <class T>
  host_batch operator()(const std::vector<T>& items, const epoch_mark* of_all = nullptr) {
    learn_fields(items, how_, fields_);
    if (!fields_.known || fields_.vary()) return laid_out_alone(items, of_all);
    if (!pool_ || (samples_ == 0 && pool_->layout().samples() < items.size())) {
      const batch_layout layout = fields_.layout(samples_ == 0 ? items.size() : samples_);
      pool_.emplace(layout, memory_->pinned(batch_pool::slab_size(layout)), true);
    }
    check_samples(items.size(), pool_->layout());
    return write_rows(items, how_, fields_, pool_->start(), of_all);
  }
  template <class T>
  host_batch operator()(const marked_batch<T>& batch) {
    return (*this)(batch.items, &batch.mark);
  }

 private:
  /// A batch whose layout is its own.
  template <class T>
  host_batch laid_out_alone(const std::vector<T>& items, const epoch_mark* of_all) {
    const batch_layout layout = layout_of_batch(items, how_, fields_);
    const std::size_t size = batch_pool::slab_size(layout);
    if (!slabs_) {
      slabs_.emplace(memory_->pinned(size, true));
    } else if (const std::size_t before = slabs_->slab_bytes(); before < size) {
      slabs_.emplace(memory_->pinned(std::max(size, before + before / 2), true));
    }
    return write_rows(items, how_, fields_, batch_pool(layout, *slabs_, true).start(), of_all);
  }

  const std::shared_ptr<slot_cache> memory_;
  std::size_t samples_;
  Collate how_;
  collated_fields fields_;
  std::optional<slab_pool> slabs_;
  std::optional<batch_pool> pool_;
};

/// The staging of one item, for a pool. It owns all that it touches, since it may outlive the stage.
template <class Stager, class Item>
class staging_job {
 public:
  staging_job(std::shared_ptr<Stager> stager, Item item) : stager_(std::move(stager)), item_(std::move(item)) {}
  bool computes() const noexcept { return stager_->computes(item_); }
  host_batch operator()() { return (*stager_)(std::move(item_)); }

 private:
  std::shared_ptr<Stager> stager_;
  Item item_;
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

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

/// Ends the stage's use of its slots.
struct end_slots {
  void operator()(slot_pool* slots) const noexcept { slots->end(); }
};

/// The slots between pipelines: those of the runtime, or, on a loop without one, of the loop.
slot_store& slot_store_of(executor& ex);
/// Moves the runtime's threads to the device's NUMA node, if the runtime may do that and the device has one.
void follow_device(const coroutine_context& here, slot_device& on);

/// Decodes the images of a batch that was filled. Owns all that it uses, as it may outlive the stage.
template <class Batch>
class decoding_job {
 public:
  decoding_job(std::shared_ptr<device_slot> slot, Batch batch) : slot_(std::move(slot)), batch_(std::move(batch)) {}
  Batch operator()() {
    slot_->decode();
    return std::move(batch_);
  }

 private:
  std::shared_ptr<device_slot> slot_;
  Batch batch_;
};

/// Fills slots ahead of the consumer until the source ends or something fails.
template <class Item, class Stager, class Batch>
task<void> fill_slots(async_generator<Item>& source, const std::shared_ptr<slot_pool>& slots,
                      std::shared_ptr<Stager> stager, cpu_pool::share on, channel<Batch>& ready) {
  std::exception_ptr failed;
  try {
    for (;;) {
      std::optional<Item> item = co_await source.next();
      if (!item) break;  // before a slot is waited for: the end needs none
      const std::size_t i = co_await slots->acquire();
      staging_job<Stager, Item> job(stager, std::move(*item));
      item.reset();
      host_batch staged;
      if (on && job.computes()) {
        staged = co_await on.run(std::move(job));
      } else {
        staged = job();
      }
      const bool decodes = has_images(staged);
      const std::shared_ptr<device_slot> slot(slots, &slots->fill(i, std::move(staged)));
      Batch filled(slot);
      if (decodes) {
        decoding_job<Batch> decoding(slot, std::move(filled));
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

/// The memory of a slot: items are laid out in as much page-locked memory, which is copied from; the memory of a
/// host_batch is in the bound of the stage that made it.
template <class Item>
inline constexpr std::size_t memories_of_slot = std::is_same_v<Item, host_batch> ? 1 : 2;

template <class Item, class Collate>
async_generator<device_batch> to_device_stream(async_generator<Item> source, std::shared_ptr<slot_device> on,
                                               to_device_options with, cpu_pool::share pool, Collate how) {
  const coroutine_context here = co_await this_context();
  executor& ex = here.get_executor();
  follow_device(here, *on);
  if (with.slots == 0) with.slots = 1;
  if (!pool) pool = cpu_pool::share::of(here.runtime());
  const bool given = with.on != nullptr;
  tell_pool(here, pool, given, 1, "lay the batches out before it, by fill_batches()");
  if (here.stage() != nullptr) here.stage()->slots.store(static_cast<std::int64_t>(with.slots));
  const std::shared_ptr<slot_cache> cache = slot_store_of(ex).of(on);
  const auto slots =
      std::make_shared<slot_pool>(here, on, with.slots, cache, with.slot_bytes, memories_of_slot<Item>, with.slot_wait);
  const std::unique_ptr<slot_pool, end_slots> last(slots.get());  // ends after everything that releases slots
  auto stager = std::make_shared<batch_stager<Collate>>(cache, with.samples, std::move(how));
  channel<device_batch> ready(with.slots);
  task<void> filling =
      fill_slots<Item, batch_stager<Collate>>(source, slots, std::move(stager), std::move(pool), ready);
  spawned<void> ahead(here, std::move(filling));
  for (;;) {
    slots->consumer_waits(ready.size() == 0);
    auto batch = co_await ready.receive();
    slots->consumer_waits(false);
    const std::string remark = on->remark();
    if (!remark.empty()) log_line(ex, remark);
    if (!batch) co_return;
    co_yield give(*batch);
  }
}

MILLRACE_EXTERN_TEMPLATE(async_generator<device_batch> to_device_stream<host_batch, collate_found>(
    async_generator<host_batch>, std::shared_ptr<slot_device>, to_device_options, cpu_pool::share, collate_found));

}  // namespace detail

/// What to_device() returns.
template <class Collate>
class to_device_stage : public detail::library_stage {
 public:
  to_device_stage(std::shared_ptr<detail::slot_device> on, const to_device_options& with, Collate how)
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
    const std::size_t kept = device_->keeps();
    stream<device_batch> made =
        stream<device_batch>(detail::to_device_stream<Item, Collate>(std::move(source), std::move(device_), with_,
                                                                     std::move(pool_), std::move(how_)))
            .named("to_device", ".slots")
            .bounded(with_.slots, detail::memories_of_slot<Item> * with_.slots * with_.slot_bytes);
    if (kept == 0) return made;
    return std::move(made).bounded("resident images", 0, kept);
  }

  std::shared_ptr<detail::slot_device> device_;
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
/// Slots: `slots` pieces of device memory at fixed addresses, all of them filled ahead. They belong to the
/// runtime: a run takes over the slots that an earlier one on that device has left, once the device is done with them,
/// and allocates only those that are missing. A batch that is larger than its slot gets a larger one, at least half as
/// large again, and so do the slots after it: within what the run's budget leaves, where there is one. A slot is used
/// again when the copy and the streams of its batch's consumers are past their events. While the loop needs a slot, it
/// queries the events every 50 us to 1 ms; no thread waits. The end of the source needs no slot.
///
/// Keeping batches: a consumer may, and may drop them on another thread. A consumer that keeps all slots and asks for
/// another batch gets a configuration_error after `slot_wait`, since nothing else frees a slot then. (In a run() the
/// time counts while the training thread waits, not while it is busy.)
///
/// Undecoded images (undecoded_image) are decoded after the copy of their batch, on the GPU if `target` is a
/// cuda::nvjpeg, else on the host, by the same pool; one batch at a time. A cuda::resident_images keeps them, within
/// its bytes, which count in the run's budget like slots, and decodes only those that it does not have.
///
/// Host memory: a host_batch from a batch_pool of this device is copied from where it lies, and dropped with the slot's
/// next use. Other batches and items are first copied to page-locked memory of the runtime, on the pool `on`, or else
/// on the runtime's (on a bare loop on its thread: about 10 GB/s).
///
/// Bound: `slots` batches: slots x slot_bytes on the device and, of items, as much page-locked host memory, both in the
/// run's budget, also when they grow; one more item or host_batch waits for a slot. The memory of a host_batch is that
/// of the stage that made it; the first two or three that are not page-locked are copied, beyond the bound.
///
/// Cancellation and the end: dropping the stage, mid-copy too, does not wait. The runtime (on a bare loop the loop)
/// keeps its slots, and waits for the device before it frees them, when it ends; after run() the process keeps them,
/// see free_device_slots(). Batches that the consumer has stay valid. Errors: those of the source and of the device,
/// after the batches before them; configuration_error for a batch that is larger than its slot where the budget leaves
/// too little for a larger one.
template <class Target, class Collate = detail::collate_found>
auto to_device(const Target& target, const to_device_options& with = {}, Collate how = Collate()) {
  auto on = detail::device_of(target);
  if constexpr (std::is_same_v<decltype(on), detail::refused>) {
    return on;
  } else {
    auto shared = std::make_shared<detail::slot_device_on<decltype(on)>>(on);
    return to_device_stage<Collate>(std::move(shared), with, std::move(how));
  }
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/to_device.ipp>
#endif
