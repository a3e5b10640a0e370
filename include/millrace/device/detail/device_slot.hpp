// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/device/detail/decode_in_slot.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/host_batch.hpp>

namespace millrace::detail {

/// Tries `action` twice, because an error of earlier work may be reported by whatever call comes first. Whether one of
/// them went well: a device on which none does is broken for good, and nothing runs on it any more.
template <class Action>
bool attempt_twice(Action action) noexcept {
  for (int i = 0; i < 2; ++i) {
    try {
      action();
      return true;
    } catch (...) {
    }
  }
  return false;
}

/// A piece of device memory with the host batch that it was filled from, and with the events that tell when the copy
/// and its consumers are done. Frees nothing by itself: see retire().
template <device D>
struct device_slot {
  using event = typename D::event_type;
  struct user {
    user(stream_ref s, event e) : stream(s), done(std::move(e)) {}
    stream_ref stream;
    event done;
    bool active = false;  // of the batch in the slot now; the event is kept for the next one
  };

  device_slot() = default;
  device_slot(device_slot&& other) noexcept
      : memory(std::exchange(other.memory, nullptr)),
        size(std::exchange(other.size, 0)),
        copied(std::move(other.copied)),
        users(std::move(other.users)),
        host(std::move(other.host)),
        unmarked(std::move(other.unmarked)),
        pixels(std::move(other.pixels)),
        decoding(std::move(other.decoding)),
        unfenced(std::exchange(other.unfenced, false)) {
    other.copied.reset();
    other.users.clear();
    other.unmarked.clear();
  }
  device_slot& operator=(device_slot&& other) noexcept {
    device_slot old(std::move(*this));
    memory = std::exchange(other.memory, nullptr);
    size = std::exchange(other.size, 0);
    copied.reset();
    if (other.copied) copied.emplace(std::move(*other.copied));
    other.copied.reset();
    users = std::exchange(other.users, {});
    host = std::move(other.host);
    unmarked = std::exchange(other.unmarked, {});
    pixels = std::exchange(other.pixels, {});
    decoding = std::move(other.decoding);
    unfenced = std::exchange(other.unfenced, false);
    return *this;
  }
  ~device_slot() = default;

  /// Whether the device is done with it. Does not block. Throws what the device reports.
  bool done(const D& on) const {
    for (const user& u : users) {
      if (u.active && !on.query(u.done)) return false;
    }
    return !copied || on.query(*copied);
  }
  /// Once it is done: lets the host batch go. The memory and the events stay for the next one.
  void empty() noexcept {
    host = host_batch();
    pixels.clear();
    for (user& u : users) u.active = false;
    if (users.size() > 16) users.clear();  // a program that makes a stream for every step would fill it for ever
  }
  /// The event tells of every copy that was enqueued. `on` is the device object that enqueued it.
  void fence(const D& on) {
    if (!unfenced) return;
    on.record(*copied);
    unfenced = false;
  }
  /// Waits until the device is done with it, and frees the memory.
  void retire(const D& on) noexcept {
    static_cast<void>(attempt_twice([this, &on] {
      if (done(on)) return;
      if (copied) on.synchronize(*copied);
      for (user& u : users) {
        if (u.active) on.synchronize(u.done);
      }
    }));
    decoding = typename decoding_of<D>::type();
    if (memory != nullptr) on.free_device(std::exchange(memory, nullptr), size);
    empty();
  }

  void* memory = nullptr;
  std::size_t size = 0;
  std::optional<event> copied;
  std::vector<user> users;
  host_batch host;
  std::vector<stream_ref> unmarked;  // use the slot, and could not be marked
  std::vector<pixel_buffer> pixels;  // decoded on the host, on their way
  typename decoding_of<D>::type decoding;
  bool unfenced = false;  // a copy may be enqueued that no event tells about
};

}  // namespace millrace::detail
