// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>

#include <poll.h>

#include <millrace/loop/detail/epoll_set.hpp>
#include <millrace/loop/detail/file_worker.hpp>
#include <millrace/loop/detail/wake_event.hpp>
#include <millrace/loop/detail/watch_table.hpp>
#include <millrace/loop/event_loop.hpp>

namespace millrace {

/// The event loop for where io_uring is refused: epoll(7) for descriptors, and one helper thread per loop, started by
/// the first file operation, that makes the calls on files one after the other. A call that has begun cannot be
/// cancelled: the loop waits for it. See event_loop.
///
/// A derived class may keep another clock (testing::jumping_loop does): it overrides now_ns() and poll(), and calls
/// shut_down() in its destructor.
template <class T = void>
class basic_epoll_loop : public event_loop {
 public:
  /// Throws io_error when there are no descriptors left.
  basic_epoll_loop() { epoll_.set(wake_.fd(), POLLIN, wake_tag, false); }
  ~basic_epoll_loop() override {
    shut_down();
    MILLRACE_ASSERT(watches_.live() == 0, "an event loop was destroyed before its watches");
  }

  const char* backend() const noexcept override { return "epoll"; }

  void watch(fd_watch& w, int fd, unsigned poll_events) override {
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

  void unwatch(fd_watch& w) noexcept override {
    if (!w.watched()) return;
    epoll_.remove(watches_.at(watches_.index_of(w)).fd);
    watches_.detach(w);
  }

  void start(file_operation& op) noexcept override { files_.submit(op); }
  void cancel(file_operation& op) noexcept override { files_.cancel(op); }

 protected:
  void poll(bool block, std::optional<time_point> deadline) override {
    std::optional<duration> timeout;
    if (!block) {
      if (watches_.live() == 0) return;
      timeout = duration(0);
    } else if (deadline) {
      timeout = *deadline - now();
    }
    wait(timeout);
  }

  /// Reports what the kernel has, after at most `timeout` of real time (nullopt: however long it takes; not positive:
  /// without waiting). False when the time was up and there was nothing, in the inbox neither.
  bool wait(std::optional<duration> timeout) {
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
  void wake() noexcept override { wake_.wake(); }

  detail::watch_table& watches() noexcept { return watches_; }

 private:
  static constexpr std::uint64_t wake_tag = ~std::uint64_t(0);

  void dispatch(std::uint64_t tag, unsigned events) noexcept {
    if (tag == wake_tag) {
      wake_.clear();
    } else if (detail::watch_table::slot* s = watches_.find(tag)) {
      detail::watch_table::report(*s->owner, events);
    }
  }

  detail::wake_event wake_;
  detail::epoll_set<T> epoll_;
  detail::watch_table watches_;
  detail::file_worker<T> files_{*this};
};
using epoll_loop = basic_epoll_loop<>;

}  // namespace millrace
