// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>

#include <sys/eventfd.h>

#include <millrace/base/error.hpp>
#include <millrace/loop/detail/owned_fd.hpp>

namespace millrace::detail {

/// Wakes a loop that sleeps in the kernel, and costs a loop that does not nothing.
///
/// The handshake: the loop announces its sleep, then looks into the inbox once more (locking it), then sleeps. A sender
/// puts its message into the inbox (locking it), then calls wake(). Whoever locked first is seen by the other, so
/// relaxed order is enough for the flag.
class wake_event {
 public:
  wake_event() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_.get() < 0) throw io_error(errno, "eventfd(2) failed: cannot make an event loop");
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

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/detail/impl/wake_event.ipp>
#endif
