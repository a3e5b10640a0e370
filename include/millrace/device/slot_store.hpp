// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/own_process.hpp>
#include <millrace/base/type_id.hpp>
#include <millrace/device/device.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

class host_batch;

namespace detail {

class slot_pool;

/// Device memory for one batch, the host batch that it was filled from, and the events that tell when the copy and its
/// consumers are done: of any device (device_slot_on). One thread at a time.
class device_slot {
 public:
  device_slot() = default;
  device_slot(const device_slot&) = delete;
  device_slot& operator=(const device_slot&) = delete;
  /// Does not free the memory: see retire().
  virtual ~device_slot() = default;

  void* memory() const noexcept { return memory_; }
  /// The size of that memory, in bytes.
  std::size_t size() const noexcept { return size_; }

  // ---- memory, for the pool and the cache

  /// Sets the device object that the slot uses from now on: a `const D*` that outlives that use.
  virtual void use_device(const void* on) noexcept = 0;
  /// Memory for a slot that has none. Throws what the device throws.
  virtual void allocate(std::size_t size) = 0;
  /// True if the device is done with the slot. Does not block. Throws what the device reports.
  virtual bool done() const = 0;
  /// True if the copy that was enqueued last is done, likewise.
  virtual bool copied() const = 0;
  /// Drops the host batch, once the device is done. The memory and the events stay for the next one.
  virtual void clear() noexcept = 0;
  /// Makes sure that the copy's event is after every copy that was enqueued. False when the device has failed.
  virtual bool fence() noexcept = 0;
  /// Waits until the device is done with the slot, and frees the memory.
  virtual void retire() noexcept = 0;

  // ---- a batch, for the stage

  /// Enqueues the copy of `batch`, whose memory the device must be able to read until the copy is done.
  virtual void fill(host_batch batch) = 0;
  /// Enqueues the decoding of the batch's images after its copy: by the device as far as it takes them, on the host the
  /// others. May take long; on any thread. Throws decode_error, which names the sample.
  virtual void decode() = 0;

  // ---- the batch's consumer, on any thread, from fill() until release()

  const own_process process;  // whose device it is

  /// The number of the batch, under which address_looks notes that its address was taken.
  virtual std::uint32_t number() const noexcept = 0;
  virtual const host_batch& host() const noexcept = 0;
  /// Makes the stream wait for the copy, and remembers it as one that uses the slot.
  virtual void wait(stream_ref s) = 0;
  /// Records the stream's end as a use of the slot, and remembers it.
  virtual void mark(stream_ref s) = 0;
  virtual bool ready() = 0;
  virtual void synchronize() = 0;
  /// Ends the batch's use of the slot: the work enqueued so far on the remembered streams is the last use.
  /// `owner` owns this slot: it is kept until the stage has been notified of the release.
  virtual void release(std::shared_ptr<void> owner) noexcept = 0;
  virtual std::string device_name() const = 0;

 protected:
  void* memory_ = nullptr;
  std::size_t size_ = 0;
  slot_pool* pool_ = nullptr;  // while a batch has the slot

 private:
  friend class slot_pool;
  std::size_t index_ = 0;  // in the pool
};

/// The slots and the page-locked memory of one device that no pipeline uses now. Any thread.
///
/// Slots that the device still uses are kept as well: the next stage takes them and waits for them, as it does for
/// those that it has filled itself, instead of allocating others. The two sizes of each kind that were used last are
/// kept (training and validation, say), so that layouts that change from epoch to epoch do not pile up.
class slot_cache {
 public:
  /// `device`: a `const D`; `page_locked`: allocates that device's page-locked memory.
  slot_cache(std::shared_ptr<const void> device, std::shared_ptr<slab_source> page_locked)
      : device_(std::move(device)), page_locked_(std::move(page_locked)) {}
  slot_cache(const slot_cache&) = delete;
  slot_cache& operator=(const slot_cache&) = delete;
  ~slot_cache() { close(); }

  const void* device() const noexcept { return device_.get(); }

  /// A slot of `size` bytes or more, or, if that is 0, of the size that was kept last; preferably one that the device
  /// is done with, and of those the smallest. Null when there is none. Throws what the device reports.
  std::shared_ptr<device_slot> take(std::size_t size) { return take(size, false); }
  /// Gives `slot`, which has no memory, `size` bytes that the device is done with: replaces it by a slot that was kept,
  /// or allocates, where the device has too little memory after freeing others. Throws what the device reports.
  void provide(std::size_t size, std::shared_ptr<device_slot>& slot);
  /// Keeps a slot that neither a batch nor a stage has any more. The device may still use it.
  void keep(std::shared_ptr<device_slot> slot) noexcept;

  /// Page-locked memory in slabs of `size` bytes; `or_more`: of more, if there are such.
  slab_pool pinned(std::size_t size, bool or_more = false);

  /// True if the device is done with everything that is kept. Does not wait.
  bool idle() noexcept;
  /// Frees what no pipeline uses; waits for the device.
  void free() noexcept;
  /// Like free(), and from now on nothing is kept: a slot that comes back is freed, after the device is done with it.
  void close() noexcept;

 private:
  using slots = std::vector<std::shared_ptr<device_slot>>;

  std::shared_ptr<device_slot> take(std::size_t size, bool only_done);
  slots take_others(std::size_t size, bool last_too);

  const std::shared_ptr<const void> device_;
  const std::shared_ptr<slab_source> page_locked_;
  std::mutex mutex_;
  slots slots_;
  std::vector<slab_pool> pinned_;  // the one used last at the end
  std::size_t last_size_ = 0;
  bool closed_ = false;
};

}  // namespace detail

/// The device memory and page-locked memory of pipelines, between one and the next: a runtime has one, so has a loop
/// that the program has made itself, and one is the process's, for the runs by run().
///
/// A to_device() that ends leaves its slots here, without waiting for the device; the next one on that device takes
/// them over. Any thread. The end of the store waits for the devices, and frees.
class slot_store {
 public:
  slot_store() = default;
  slot_store(const slot_store&) = delete;
  slot_store& operator=(const slot_store&) = delete;
  ~slot_store() {
    for (const held& each : all_) each.kept->close();
  }

  /// The slots kept on `on`: one cache for all devices that are equal to it. Defined in detail/slots.hpp.
  template <device D>
  std::shared_ptr<detail::slot_cache> of(const D& on);

  /// Frees what no pipeline uses; waits until the devices are done with it.
  void free() noexcept;
  /// Frees the devices that no pipeline uses and that are done with all that is kept. Waits for none.
  void free_idle() noexcept;

  /// That of the process: never destroyed, as a device may be busy while the program ends.
  static slot_store& of_process();

 private:
  struct held {
    type_id kind;
    std::shared_ptr<detail::slot_cache> kept;
  };

  std::mutex mutex_;
  std::vector<held> all_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/slot_store.ipp>
#endif
