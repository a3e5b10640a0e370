// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>

#include <millrace/base/compiler.hpp>
#include <millrace/loop/detail/epoll_set.hpp>

namespace millrace::detail {

MILLRACE_INLINE void epoll_set::set(int fd, unsigned events, std::uint64_t tag, bool registered) {
  epoll_event e{};
  e.events = events;
  e.data.u64 = tag;
  if (::epoll_ctl(fd_.get(), registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) != 0) fail("epoll_ctl(2)");
}

MILLRACE_INLINE int epoll_set::wait_for(epoll_event* events, std::optional<duration> timeout) noexcept {
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

}  // namespace millrace::detail
