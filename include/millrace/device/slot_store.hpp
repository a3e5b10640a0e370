// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

class device_slot;
class slot_device;

/// The slots and the page-locked memory of one device that no pipeline uses now. Any thread.
///
/// Slots that the device still uses are kept as well: the next stage takes them and waits for them, as it does for
/// those that it has filled itself, instead of allocating others. The two sizes of each kind that were used last are
/// kept (training and validation, say), so that layouts that change from epoch to epoch do not pile up.
class slot_cache {
 public:
  explicit slot_cache(std::shared_ptr<slot_device> on) noexcept : on_(std::move(on)) {}
  slot_cache(const slot_cache&) = delete;
  slot_cache& operator=(const slot_cache&) = delete;
  ~slot_cache() { close(); }

  slot_device& device() const noexcept { return *on_; }

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

  const std::shared_ptr<slot_device> on_;
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
    for (const auto& each : all_) each->close();
  }

  /// One for all devices that are equal to `on`.
  std::shared_ptr<detail::slot_cache> of(const std::shared_ptr<detail::slot_device>& on);

  /// Frees what no pipeline uses; waits until the devices are done with it.
  void free() noexcept;
  /// Frees the devices that no pipeline uses and that are done with all that is kept. Waits for none.
  void free_idle() noexcept;

  /// That of the process: never destroyed, as a device may be busy while the program ends.
  static slot_store& of_process();

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<detail::slot_cache>> all_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/slot_store.ipp>
#endif
