// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loop/fd_watch.hpp>

namespace millrace::detail {

/// The watches of one loop. The kernel is given tags (slot and generation), never addresses: a completion that arrives
/// after its watch was changed or ended, or whose descriptor number has come back as another one, finds nothing.
class watch_table {
 public:
  static constexpr std::uint32_t no_slot = UINT32_MAX;
  struct slot {
    fd_watch* owner = nullptr;
    int fd = -1;
    unsigned events = 0;
    std::uint32_t generation = 0;
    bool polled = false;    // a one-shot poll with the present generation is in the kernel
    bool in_epoll = false;  // registered in an epoll set instead
    bool listed = false;    // in the list of slots to arm
    bool broken = false;    // the kernel cannot poll it; reported
    std::uint32_t next_free = no_slot;
  };

  /// Slots go into the upper 29 bits of a half word: the ring's user data needs the lower three.
  static constexpr std::uint32_t max_slots = std::uint32_t(1) << 29;

  std::size_t live() const noexcept { return live_; }
  slot& at(std::uint32_t index) noexcept { return slots_[index]; }
  std::uint64_t tag(std::uint32_t index) const noexcept {
    return static_cast<std::uint64_t>(slots_[index].generation) << 32 | index;
  }

  /// Throws where a watch that is on is not one of this loop.
  void check(const fd_watch& w) const {
    if (!owns(w)) misused("an fd_watch is watched by another loop");
  }

  /// The slot of a watch that is on.
  std::uint32_t index_of(const fd_watch& w) const noexcept {
    MILLRACE_ASSERT(owns(w), "an fd_watch belongs to another loop");
    return w.slot_;
  }

  std::uint32_t attach(fd_watch& w);

  /// Frees the slot; everything under way for it is stale from now on.
  void detach(fd_watch& w) noexcept;

  /// The slot that a completion is for; null when it is stale.
  slot* find(std::uint64_t tag_of_completion) noexcept;

  std::size_t size() const noexcept { return slots_.size(); }
  static void report(fd_watch& w, unsigned poll_events) noexcept { w.ready(poll_events); }

 private:
  bool owns(const fd_watch& w) const noexcept { return w.slot_ < slots_.size() && slots_[w.slot_].owner == &w; }

  std::vector<slot> slots_;
  std::uint32_t free_ = no_slot;  // the first of the free slots, which are chained
  std::size_t live_ = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/detail/impl/watch_table.ipp>
#endif
