// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include <millrace/coro/executor.hpp>
#include <millrace/loop/detail/file_queue.hpp>
#include <millrace/loop/detail/thread.hpp>

namespace millrace::detail {

/// File operations for loops without a ring: one thread per loop that makes the calls one after the other, started by
/// the first operation. (Regular files cannot be polled: reading on the loop's own thread would stop sockets and timers
/// for as long as the disk takes, hence the thread; one is enough to keep a disk's read-ahead going, and the ring is
/// there for more.)
class file_worker {
 public:
  explicit file_worker(executor& ex) noexcept : executor_(ex), home_(*this) {}
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
  std::condition_variable changed_;
  file_queue waiting_;
  file_queue finished_;
  bool stopping_ = false;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/detail/impl/file_worker.ipp>
#endif
