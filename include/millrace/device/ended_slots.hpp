// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include <millrace/base/detail/only_owner.hpp>
#include <millrace/device/detail/slot_ring_base.hpp>

namespace millrace {

namespace detail {

/// The rings of slots whose stage is gone, and which a device still uses or a consumer still has batches of. Nobody
/// waits for them: they are looked at when another stage needs a slot, and when one of their batches is released.
///
/// One for the process, since nothing of a pipeline is left that could keep them. Never destroyed: at the end of the
/// program nobody may wait, and the runtimes of devices may be gone.
class ended_rings {
 public:
  constexpr ended_rings() noexcept = default;
  ended_rings(const ended_rings&) = delete;
  ended_rings& operator=(const ended_rings&) = delete;

  void add(std::shared_ptr<slot_ring_base> ring) noexcept {
    const std::lock_guard lock(mutex_);
    ended_ring_link& link = ring->link;
    link.ended_.store(true, std::memory_order_release);
    link.next_ = std::exchange(first_, ring.get());
    link.self_ = std::move(ring);
  }

  /// Frees the rings that nobody has batches of and that their devices are done with; does not wait.
  void collect() noexcept {
    end([](slot_ring_base& ring) { return ring.quiet(); });
  }
  /// The same, and waits for the devices.
  void finish() noexcept {
    end([](slot_ring_base&) { return true; });
  }

 private:
  template <class May>
  void end(May may) noexcept {
    slot_ring_base* ready = nullptr;  // destroyed outside the lock: items may be of any kind
    {
      const std::lock_guard lock(mutex_);
      for (slot_ring_base** at = &first_; *at != nullptr;) {
        slot_ring_base* const ring = *at;
        ended_ring_link& link = ring->link;
        if (only_owner(link.self_) && may(*ring)) {
          *at = link.next_;
          link.next_ = std::exchange(ready, ring);
        } else {
          at = &link.next_;
        }
      }
    }
    while (ready != nullptr) {
      const std::shared_ptr<slot_ring_base> last = std::move(ready->link.self_);
      ready = last->link.next_;
    }
  }

  std::mutex mutex_;
  slot_ring_base* first_ = nullptr;
};

inline constinit ended_rings all_ended_rings;

}  // namespace detail

/// Frees what pipelines that have ended have left on devices: waits until the devices are done with it.
///
/// The end of a pipeline waits for no device. The slots of its to_device() that the device still used then, or the
/// consumer, are freed when the device is seen to be done with them: as another to_device() needs a slot, or as the
/// last of their batches is released; at the latest when the process ends. This call is for a program that wants the
/// memory for something else, or is about to reset the device. Any thread; blocks. Batches that the program still has
/// keep their slots. A cuda::stream keeps what is freed for its next pipeline, as long as it lives.
inline void free_ended_slots() noexcept { detail::all_ended_rings.finish(); }

}  // namespace millrace
