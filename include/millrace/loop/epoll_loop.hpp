// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/loop/detail/descriptors.hpp>
#include <millrace/loop/detail/file_queue.hpp>
#include <millrace/loop/detail/thread.hpp>
#include <millrace/loop/event_loop.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// File operations for loops without a ring: one thread per loop that makes the calls one after the other, started by
/// the first operation. (Regular files cannot be polled: reading on the loop's own thread would stop sockets and timers
/// for as long as the disk takes, hence the thread; one is enough to keep a disk's read-ahead going, and the ring is
/// there for more.)
class file_worker {
 public:
  explicit file_worker(executor& ex) : executor_(ex), home_(*this) {}
  file_worker(const file_worker&) = delete;
  file_worker& operator=(const file_worker&) = delete;
  ~file_worker();

  void submit(file_operation& op) noexcept;

  void cancel(file_operation& op) noexcept;

 private:
  /// Brings finished operations to the loop's thread.
  class messenger final : public remote_node {
   public:
    explicit messenger(file_worker& w) noexcept : worker_(w) {}

   private:
    void run() noexcept override { worker_.arrive(); }
    file_worker& worker_;
  };

  bool start() noexcept;

  void work() noexcept;

  // With the mutex held. The lock order is this mutex, then the executor's inbox.
  void send_home(file_operation& op, std::int64_t result) noexcept;

  void arrive() noexcept;

  static std::int64_t perform(const file_request& r) noexcept;
  static std::int64_t call(const file_request& r) noexcept;

  executor& executor_;
  messenger home_;
  thread thread_;
  std::mutex mutex_;
  std::condition_variable* const changed_ = new std::condition_variable;  // see the destructor
  file_queue waiting_;
  file_queue finished_;
  bool stopping_ = false;
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// The event loop for where io_uring is refused: epoll(7) for descriptors, and one helper thread per loop, started by
/// the first file operation, that makes the calls on files one after the other. A call that has begun cannot be
/// cancelled: the loop waits for it. See event_loop.
///
/// A derived class may keep another clock (testing::jumping_loop does): it overrides now_ns() and poll(), and calls
/// shut_down() in its destructor.
class epoll_loop : public event_loop {
 public:
  /// Throws io_error when there are no descriptors left.
  epoll_loop() { epoll_.set(wake_.fd(), POLLIN, wake_tag); }
  ~epoll_loop() override {
    shut_down();
    MILLRACE_ASSERT(watches_.live() == 0 || !process().here(), "an event loop was destroyed before its watches");
  }

  const char* backend() const noexcept override { return "epoll"; }

  MILLRACE_INLINE void watch(fd_watch& w, int fd, unsigned poll_events) override;

  MILLRACE_INLINE void unwatch(fd_watch& w) noexcept override;

  void start(file_operation& op) noexcept override { files_.submit(op); }
  void cancel(file_operation& op) noexcept override { files_.cancel(op); }

 protected:
  MILLRACE_INLINE void poll(bool block, std::optional<time_point> deadline) override;

  /// Reports the kernel's events, after at most `timeout` of real time (nullopt: however long it takes; not positive:
  /// without waiting). False when the time was up and there was nothing, in the inbox neither.
  bool wait(std::optional<duration> timeout);
  void wake() noexcept override { wake_.wake(); }

  detail::watch_table& watches() noexcept { return watches_; }

 private:
  static constexpr std::uint64_t wake_tag = detail::epoll_set::no_tag - 1;  // no slot's

  void dispatch(std::uint64_t tag, unsigned events) noexcept;

  detail::wake_event wake_;
  detail::epoll_set epoll_;
  detail::watch_table watches_;
  detail::file_worker files_{*this};
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/epoll_loop.ipp>
#endif
