// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <string>

#include <millrace/device/device.hpp>

namespace millrace {

/// The stream of a program without an accelerator: work runs on the calling thread, so there is nothing to order.
/// `batch.wait(mill::host_stream)` and `batch.release(mill::host_stream)` read as they do for a GPU.
struct host_stream_tag {};
/// The one stream there is without an accelerator.
inline constexpr host_stream_tag* host_stream = nullptr;

/// The same pipeline on a machine without an accelerator: batches end in ordinary host memory.
///
/// "Device" memory is separate host memory: a copy is a real copy, done before copy_to_device() returns (about 10 GB/s
/// on the calling thread), never an alias of the staging memory. So a batch that the program writes into never changes
/// what the pipeline reads, and moving to a real device changes no meaning. Events are done when recorded. There is
/// nothing to share: all host devices are equal. Streams of other devices are refused.
class host_device {
 public:
  /// Nothing is ever pending, so an event has no state.
  class event_type {};

  static constexpr std::size_t alignment = 256;
  /// to_device() need not stage batches in memory of allocate_pinned().
  static constexpr bool copies_any_memory = true;

  void* allocate_pinned(std::size_t n) const { return ::operator new(n, std::align_val_t(alignment)); }
  void free_pinned(void* memory, std::size_t) const noexcept { ::operator delete(memory, std::align_val_t(alignment)); }
  void* allocate_device(std::size_t n) const { return ::operator new(n, std::align_val_t(alignment)); }
  void free_device(void* memory, std::size_t) const noexcept { ::operator delete(memory, std::align_val_t(alignment)); }

  event_type make_event() const noexcept { return event_type(); }
  void copy_to_device(void* to, const void* from, std::size_t n) const noexcept {
    if (n != 0) std::memcpy(to, from, n);
  }
  void record(event_type&) const noexcept {}
  void record(event_type&, stream_ref s) const { s.as<host_stream_tag>(); }
  void wait(stream_ref s, const event_type&) const { s.as<host_stream_tag>(); }
  bool query(const event_type&) const noexcept { return true; }
  void synchronize(const event_type&) const noexcept {}
  void synchronize(stream_ref s) const { s.as<host_stream_tag>(); }
  std::string name() const { return "host"; }
  friend bool operator==(const host_device&, const host_device&) noexcept = default;
};

static_assert(device<host_device>);

}  // namespace millrace
