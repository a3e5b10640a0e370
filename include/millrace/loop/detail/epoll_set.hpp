// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

#include <millrace/base/clock.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loop/detail/owned_fd.hpp>

namespace millrace::detail {

static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLERR == EPOLLERR && POLLHUP == EPOLLHUP,
              "epoll and poll name the same events with the same bits");

/// A level-triggered epoll set whose events carry a tag.
class epoll_set {
 public:
  epoll_set() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (fd_.get() < 0) fail("epoll_create1(2)");
  }

  int fd() const noexcept { return fd_.get(); }

  /// Registers `fd`, or changes its registration. Throws io_error (EPERM: a descriptor that cannot be polled).
  void set(int fd, unsigned events, std::uint64_t tag, bool registered);
  void remove(int fd) noexcept { ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr); }

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

  int wait_for(epoll_event* events, std::optional<duration> timeout) noexcept;

  [[noreturn]] static void fail(const char* call) {
    const int code = errno;
    throw io_error(code, std::string(call) + " failed: " + std::strerror(code));
  }

  owned_fd fd_;
  bool precise_ = true;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/detail/impl/epoll_set.ipp>
#endif
