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
template <class = void>
class epoll_set {
 public:
  epoll_set() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (fd_.get() < 0) fail("epoll_create1(2)");
  }

  int fd() const noexcept { return fd_.get(); }

  /// Registers `fd`, or changes its registration. Throws io_error (EPERM: a descriptor that cannot be polled).
  void set(int fd, unsigned events, std::uint64_t tag, bool registered) {
    epoll_event e{};
    e.events = events;
    e.data.u64 = tag;
    if (::epoll_ctl(fd_.get(), registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) != 0) fail("epoll_ctl(2)");
  }
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

  int wait_for(epoll_event* events, std::optional<duration> timeout) noexcept {
    if (!timeout) return ::epoll_wait(fd_.get(), events, batch, -1);
    const std::int64_t ns = timeout->count();
    if (ns <= 0) return ::epoll_wait(fd_.get(), events, batch, 0);
    if (precise_) {
      const timespec t{ns / 1000000000, ns % 1000000000};
      const int n = ::epoll_pwait2(fd_.get(), events, batch, &t, nullptr);
      if (n >= 0 || (errno != ENOSYS && errno != EPERM)) return n;
      precise_ = false;  // before Linux 5.11, or filtered
    }
    constexpr std::int64_t longest = 3600 * std::int64_t(1000);  // the caller asks again
    const std::int64_t ms = (ns - 1) / 1000000 + 1;
    return ::epoll_wait(fd_.get(), events, batch, static_cast<int>(ms < longest ? ms : longest));
  }

  [[noreturn]] static void fail(const char* call) {
    const int code = errno;
    throw io_error(code, std::string(call) + " failed: " + std::strerror(code));
  }

  owned_fd fd_;
  bool precise_ = true;
};

}  // namespace millrace::detail
