// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <string>

#include <millrace/device/stream_ref.hpp>

namespace millrace {

/// What `to_device` needs of an accelerator: memory on both sides, one queue of copies, events.
///
/// A device object is a cheap copyable handle (a copy is the same device and the same copy stream). It owns one
/// *copy stream*: the copies of copy_to_device() and the marks of record() run on it one after another, later, in
/// order. An `event_type` marks a place in a stream; recording it again moves the mark. Events are movable, made by
/// make_event(), and may be destroyed while pending. All calls may come from several threads at once, as long as one
/// event is not recorded by two of them at once. No call but synchronize() waits for the device (freeing may, on some:
/// see free_device()). What can fail throws an `error`; freeing never does.
///
/// - allocate_pinned(n) / free_pinned(p, n): host memory that the device reads directly while a copy is pending.
/// - allocate_device(n) / free_device(p, n): memory of the device, aligned to 256 bytes at least. The caller frees
///   nothing that a pending copy or a user's work still uses: freeing need not wait for it, and should not wait for
///   other work either; where it does (cudaFree), a runtime frees at its own end.
/// - copy_to_device(to, from, n): enqueues one copy. Both ranges stay untouched until an event recorded behind it is
///   done. `from` may be ordinary memory; then the call itself may take as long as the copy.
/// - record(e) / record(e, s): marks the end of the copy stream / of the user's stream `s` as they are now.
/// - wait(s, e): whatever is enqueued on the user's stream `s` from now on starts after `e`. Does not wait itself.
/// - query(e): whether `e`, as last recorded, is reached; an event never recorded is.
/// - synchronize(e): blocks the calling thread until query(e) would say true.
/// - synchronize(s): the same until the user's stream `s` has done all that is enqueued on it now.
/// - copies_any_memory (optional, a static bool): copying from ordinary memory costs no more than from pinned memory.
/// - a == b: whether memory and events of one serve the other as well (two streams of one GPU are equal): what one run
///   leaves is used by the next one. The copy streams may differ.
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

}  // namespace millrace
