// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include <millrace/base/compiler.hpp>
#include <millrace/loop/epoll_loop.hpp>

namespace millrace {

MILLRACE_INLINE void epoll_loop::watch(fd_watch& w, int fd, unsigned poll_events) {
  if (!w.watched()) {
    const std::uint32_t index = watches_.attach(w);
    try {
      epoll_.set(fd, poll_events, watches_.tag(index), false);
    } catch (...) {
      watches_.detach(w);
      throw;
    }
    watches_.at(index).fd = fd;
    watches_.at(index).events = poll_events;
    return;
  }
  watches_.check(w);
  detail::watch_table::slot& s = watches_.at(watches_.index_of(w));
  if (s.fd == fd && s.events == poll_events) return;
  if (s.fd != fd) {
    unwatch(w);
    watch(w, fd, poll_events);
    return;
  }
  epoll_.set(fd, poll_events, watches_.tag(watches_.index_of(w)), true);
  s.events = poll_events;
}

MILLRACE_INLINE void epoll_loop::unwatch(fd_watch& w) noexcept {
  if (!w.watched()) return;
  epoll_.remove(watches_.at(watches_.index_of(w)).fd);
  watches_.detach(w);
}

MILLRACE_INLINE void epoll_loop::poll(bool block, std::optional<time_point> deadline) {
  std::optional<duration> timeout;
  if (!block) {
    if (watches_.live() == 0) return;
    timeout = duration(0);
  } else if (deadline) {
    timeout = *deadline - now();
  }
  wait(timeout);
}

MILLRACE_INLINE bool epoll_loop::wait(std::optional<duration> timeout) {
  bool message = false;
  if (!timeout || timeout->count() > 0) {
    wake_.sleep_begins();
    message = !inbox_empty();
    if (message) timeout = duration(0);
  }
  bool event;
  try {
    event = epoll_.wait(timeout, [this](std::uint64_t tag, unsigned events) { dispatch(tag, events); });
  } catch (...) {
    wake_.sleep_ends();
    throw;
  }
  wake_.sleep_ends();
  return event || message;
}

MILLRACE_INLINE void epoll_loop::dispatch(std::uint64_t tag, unsigned events) noexcept {
  if (tag == wake_tag) {
    wake_.clear();
  } else if (detail::watch_table::slot* s = watches_.find(tag)) {
    detail::watch_table::report(*s->owner, events);
  }
}

}  // namespace millrace
