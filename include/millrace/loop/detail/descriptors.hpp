// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loop/event_loop.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A descriptor that is closed with its owner.
class owned_fd {
 public:
  owned_fd() noexcept = default;
  explicit owned_fd(int fd) noexcept : fd_(fd) {}
  owned_fd(owned_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  owned_fd& operator=(owned_fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~owned_fd() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// Wakes a loop that sleeps in the kernel, at no cost to a loop that does not.
///
/// The handshake: the loop announces its sleep, then looks into the inbox once more (locking it), then sleeps. A sender
/// puts its message into the inbox (locking it), then calls wake(). The one that locks second sees the other's write,
/// so relaxed order is enough for the flag.
class wake_event {
 public:
  wake_event() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_.get() < 0) throw io_error::of(errno, "cannot make an event loop: eventfd(2) failed");
  }

  int fd() const noexcept { return fd_.get(); }
  void sleep_begins() noexcept { sleeping_.store(true, std::memory_order_relaxed); }
  void sleep_ends() noexcept { sleeping_.store(false, std::memory_order_relaxed); }

  /// Any thread, after it has locked the inbox.
  void wake() noexcept;
  /// After the kernel said that the descriptor is readable.
  void clear() noexcept;

 private:
  owned_fd fd_;
  std::atomic<bool> sleeping_{false};
};

static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLERR == EPOLLERR && POLLHUP == EPOLLHUP,
              "epoll and poll name the same events with the same bits");

/// True if a system call has failed because this kernel does not have it, or a filter of system calls refuses it.
inline bool is_missing_call(int code) noexcept { return code == ENOSYS || code == EPERM || code == EACCES; }

/// A level-triggered epoll set whose events carry a tag.
///
/// The kernel names a registration by the number of its descriptor, and forgets it when the descriptor is closed. The
/// number may then come back and be registered with another tag, before the owner of the first tag knows: therefore
/// only the tag that was registered last for a number changes or removes its registration.
class epoll_set {
 public:
  static constexpr std::uint64_t no_tag = ~std::uint64_t(0);

  epoll_set() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (fd_.get() < 0) fail("epoll_create1(2)");
  }

  int fd() const noexcept { return fd_.get(); }

  /// Registers `fd`, or changes its registration if `tag` is the registered one. Throws io_error (EPERM: a
  /// descriptor that cannot be polled; EEXIST: it is registered with another tag) or std::bad_alloc, and registers
  /// nothing then.
  void set(int fd, unsigned events, std::uint64_t tag);
  /// Does nothing if another tag was registered for `fd` meanwhile.
  void remove(int fd, std::uint64_t tag) noexcept;

  /// Waits (nullopt: for ever; not positive: not at all) and calls `visit(tag, events)` for a bounded number of events.
  /// False when the time was up and there was none.
  template <class Visit>
  bool wait(std::optional<duration> timeout, Visit&& visit) {
    epoll_event events[batch];
    const int n = wait_for(events, timeout);
    if (n < 0 && errno != EINTR) fail("epoll_wait(2)");
    for (int i = 0; i < n; ++i) visit(std::uint64_t(events[i].data.u64), unsigned(events[i].events));
    return n != 0;
  }

 private:
  static constexpr int batch = 128;

  bool registered(int fd, std::uint64_t tag) const noexcept {
    const auto place = static_cast<std::size_t>(fd);
    return place < tags_.size() && tags_[place] == tag;
  }
  int wait_for(epoll_event* events, std::optional<duration> timeout) noexcept;

  [[noreturn]] static void fail(const char* call) {
    const int code = errno;
    throw io_error::of(code, std::string(call) + " failed");
  }

  owned_fd fd_;
  std::vector<std::uint64_t> tags_;  // by descriptor: the one registered last, or no_tag
  bool precise_ = true;
};

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
    bool ending = false;    // the cancellation of a poll waits to be submitted; it is armed after that
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

  /// Throws if a watch that is on is not one of this loop.
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
#include <millrace/loop/detail/descriptors.ipp>
#endif
