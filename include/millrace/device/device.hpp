// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <new>
#include <string>

#include <millrace/base/error.hpp>
#include <millrace/base/type_id.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A user's stream, of whatever device: the native handle and its type, not owned.
///
/// Every runtime's stream handle is a pointer (`cudaStream_t` is `CUstream_st*`), so any pointer converts, the null
/// pointer of that type too (the default stream). Which type it was is remembered, and a device refuses a stream of
/// another runtime instead of passing a wrong pointer on. The stream must stay alive for the call it is given to and
/// until the work enqueued on it is done.
class stream_ref {
 public:
  template <class Native>
  stream_ref(Native* stream) noexcept : handle_(stream), kind_(type_id::of<Native>()) {}

  template <class Native>
  bool is() const noexcept {
    return kind_ == type_id::of<Native>();
  }

  /// The native handle. Throws configuration_error when this is a stream of another runtime.
  template <class Native>
  Native* as() const {
    if (!is<Native>()) throw configuration_error("a stream of another kind of device was passed");
    return static_cast<Native*>(handle_);
  }

  friend bool operator==(const stream_ref&, const stream_ref&) noexcept = default;

 private:
  void* handle_;
  type_id kind_;
};

/// The requirements of `to_device` on an accelerator: memory on both sides, one queue of copies, events.
///
/// A device object is a cheap copyable handle (a copy is the same device and the same copy stream). It owns one
/// *copy stream*: the copies of copy_to_device() and the marks of record() run on it one after another, later, in
/// order. An `event_type` marks a place in a stream; recording it again moves the mark. Events are movable, made by
/// make_event(), and may be destroyed while pending. All calls may come from several threads at once, as long as one
/// event is not recorded by two of them at once. No call but synchronize() waits for the device (freeing may, on some:
/// see free_device()). Functions that can fail throw an `error`; freeing never does.
///
/// - allocate_pinned(n) / free_pinned(p, n): host memory that the device reads directly while a copy is pending.
/// - allocate_device(n) / free_device(p, n): memory of the device, aligned to 256 bytes at least. The caller frees
///   nothing that a pending copy or a user's work still uses: freeing need not wait for it, and should not wait for
///   other work either; where it does (cudaFree), a runtime frees at its own end.
/// - copy_to_device(to, from, n): enqueues one copy. Neither range may be touched until an event recorded after it is
///   done. `from` may be ordinary memory; then the call itself may take as long as the copy.
/// - record(e) / record(e, s): marks the end of the copy stream / of the user's stream `s` as they are now.
/// - wait(s, e): whatever is enqueued on the user's stream `s` from now on starts after `e`. Does not wait itself.
/// - query(e): whether `e`, as last recorded, is reached; an event never recorded is.
/// - synchronize(e): blocks the calling thread until query(e) would say true.
/// - synchronize(s): the same until the user's stream `s` has done all that is enqueued on it now.
/// - copies_any_memory (optional, a static bool): copying from ordinary memory costs no more than from pinned memory.
/// - pci_address() (optional, a std::string): "0000:3b:00.0", so that a runtime on a machine of several NUMA nodes can
///   keep its threads, and the memory that they allocate, near the device.
/// - a == b: whether memory and events of one serve the other as well (two streams of one GPU are equal): slots of one
///   run are used by the next one. The copy streams may differ.
/// - name(): "cuda:0", "host": for reports.
template <class D>
concept device = std::copy_constructible<D> && std::equality_comparable<D> && std::movable<typename D::event_type> &&
                 requires(const D& d, void* memory, const void* from, std::size_t n, typename D::event_type& e,
                          const typename D::event_type& recorded, stream_ref s) {
                   { d.allocate_pinned(n) } -> std::same_as<void*>;
                   { d.free_pinned(memory, n) } noexcept;
                   { d.allocate_device(n) } -> std::same_as<void*>;
                   { d.free_device(memory, n) } noexcept;
                   { d.make_event() } -> std::same_as<typename D::event_type>;
                   d.copy_to_device(memory, from, n);
                   d.record(e);
                   d.record(e, s);
                   d.wait(s, recorded);
                   { d.query(recorded) } -> std::same_as<bool>;
                   d.synchronize(recorded);
                   d.synchronize(s);
                   { d.name() } -> std::convertible_to<std::string>;
                 };

namespace detail {
/// Its copies_any_memory; false for a device that has none.
template <class D>
inline constexpr bool copies_any_memory = [] {
  if constexpr (requires { D::copies_any_memory; }) {
    return D::copies_any_memory;
  } else {
    return false;
  }
}();
}  // namespace detail

/// The stream of a program without an accelerator: work runs on the calling thread, so there is nothing to order.
/// `batch.wait(mill::host_stream)` and `batch.release(mill::host_stream)` read as they do for a GPU.
struct host_stream_tag {};
/// The one stream there is without an accelerator.
inline constexpr host_stream_tag* host_stream = nullptr;

/// A device for the same pipeline on a machine without an accelerator: batches end in ordinary host memory.
///
/// "Device" memory is separate host memory: a copy is a real copy, done before copy_to_device() returns (about 10 GB/s
/// on the calling thread), never an alias of the staging memory. So a batch that the program writes into never changes
/// the pipeline's data, and moving to a real device changes no meaning. Events are done when recorded. All host devices
/// are equal. Streams of other devices are refused.
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
