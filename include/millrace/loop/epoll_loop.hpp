// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>

#include <poll.h>

#include <millrace/base/compiler.hpp>
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
class epoll_loop : public event_loop {
 public:
  /// Throws io_error when there are no descriptors left.
  epoll_loop() { epoll_.set(wake_.fd(), POLLIN, wake_tag, false); }
  ~epoll_loop() override {
    shut_down();
    MILLRACE_ASSERT(watches_.live() == 0, "an event loop was destroyed before its watches");
  }

  const char* backend() const noexcept override { return "epoll"; }

  MILLRACE_INLINE void watch(fd_watch& w, int fd, unsigned poll_events) override;

  MILLRACE_INLINE void unwatch(fd_watch& w) noexcept override;

  void start(file_operation& op) noexcept override { files_.submit(op); }
  void cancel(file_operation& op) noexcept override { files_.cancel(op); }

 protected:
  MILLRACE_INLINE void poll(bool block, std::optional<time_point> deadline) override;

  /// Reports what the kernel has, after at most `timeout` of real time (nullopt: however long it takes; not positive:
  /// without waiting). False when the time was up and there was nothing, in the inbox neither.
  bool wait(std::optional<duration> timeout);
  void wake() noexcept override { wake_.wake(); }

  detail::watch_table& watches() noexcept { return watches_; }

 private:
  static constexpr std::uint64_t wake_tag = ~std::uint64_t(0);

  void dispatch(std::uint64_t tag, unsigned events) noexcept;

  detail::wake_event wake_;
  detail::epoll_set epoll_;
  detail::watch_table watches_;
  detail::file_worker files_{*this};
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/impl/epoll_loop.ipp>
#endif
