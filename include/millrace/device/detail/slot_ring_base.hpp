// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <millrace/device/host_batch.hpp>
#include <millrace/device/stream_ref.hpp>

namespace millrace::detail {

/// What a device_batch needs of the ring of slots it came from, whatever the device. A slot that was handed out belongs
/// to its batch until release(); different slots may be used on different threads.
class slot_ring_base {
 public:
  slot_ring_base() = default;
  slot_ring_base(const slot_ring_base&) = delete;
  slot_ring_base& operator=(const slot_ring_base&) = delete;
  virtual ~slot_ring_base() = default;

  /// The device's memory, for the batch's consumer.
  virtual void* memory(std::size_t slot) noexcept = 0;
  virtual const host_batch& host(std::size_t slot) const noexcept = 0;
  /// Makes the stream wait for the copy, and remembers it as one that uses the slot.
  virtual void wait(std::size_t slot, stream_ref s) = 0;
  /// Marks the stream's end as a use of the slot, and remembers it.
  virtual void mark(std::size_t slot, stream_ref s) = 0;
  virtual bool ready(std::size_t slot) = 0;
  virtual void synchronize(std::size_t slot) = 0;
  /// Ends the batch's hold: what the remembered streams have enqueued by now is the last use of the slot.
  /// `self` owns this ring: it is kept until the stage has heard of the release.
  virtual void release(std::size_t slot, std::shared_ptr<void> self) noexcept = 0;
  virtual std::string device_name() const = 0;
};

}  // namespace millrace::detail
