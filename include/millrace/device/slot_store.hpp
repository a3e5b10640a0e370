// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <millrace/base/type_id.hpp>
#include <millrace/device/device.hpp>

namespace millrace {

namespace detail {
template <device D>
class kept_slots;

/// The slots that pipelines leave for the next ones, on a device of any type.
class kept_on_device {
 public:
  kept_on_device() = default;
  kept_on_device(const kept_on_device&) = delete;
  kept_on_device& operator=(const kept_on_device&) = delete;
  virtual ~kept_on_device() = default;

  /// Frees what no pipeline uses; waits for the device.
  virtual void free() noexcept = 0;
  /// The same, and from now on nothing is kept: what comes back is freed, after the device is done with it.
  virtual void close() noexcept = 0;
};
}  // namespace detail

/// The device memory and page-locked memory of pipelines, between one and the next: a runtime has one, and a loop that
/// the program has made itself.
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

  /// What is kept on `on`: one for all devices that are equal to it. Defined in detail/kept_slots.hpp.
  template <device D>
  std::shared_ptr<detail::kept_slots<D>> of(const D& on);

  /// Frees what no pipeline uses; waits until the devices are done with it.
  void free() noexcept;

 private:
  struct held {
    type_id kind;
    std::shared_ptr<detail::kept_on_device> kept;
  };

  std::mutex mutex_;
  std::vector<held> all_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/impl/slot_store.ipp>
#endif
