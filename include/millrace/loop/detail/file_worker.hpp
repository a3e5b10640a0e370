// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <mutex>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <millrace/base/detail/condition.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/loop/detail/file_queue.hpp>
#include <millrace/loop/detail/thread.hpp>

namespace millrace::detail {

/// File operations for loops without a ring: one thread per loop that makes the calls one after the other, started by
/// the first operation. (Regular files cannot be polled: reading on the loop's own thread would stop sockets and timers
/// for as long as the disk takes, hence the thread; one is enough to keep a disk's read-ahead going, and the ring is
/// there for more.)
template <class = void>
class file_worker {
 public:
  explicit file_worker(executor& ex) noexcept : executor_(ex), home_(*this) {}
  file_worker(const file_worker&) = delete;
  file_worker& operator=(const file_worker&) = delete;
  ~file_worker() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void submit(file_operation& op) noexcept {
    executor_.operation_started();
    const bool started = thread_.joinable() || start();
    std::lock_guard lock(mutex_);
    if (started) {
      waiting_.push(op, file_queue::place::queued);
      changed_.notify_one();
    } else {
      send_home(op, -ENOMEM);
    }
  }

  void cancel(file_operation& op) noexcept {
    {
      std::lock_guard lock(mutex_);
      if (file_queue::place_of(op) != file_queue::place::queued) return;
      waiting_.remove(op);
    }
    executor_.operation_finished();
    file_queue::complete(op, -ECANCELED);
  }

 private:
  /// Brings finished operations to the loop's thread.
  class messenger final : public remote_node {
   public:
    explicit messenger(file_worker& w) noexcept : worker_(w) {}

   private:
    void run() noexcept override { worker_.arrive(); }
    file_worker& worker_;
  };

  bool start() noexcept {
    try {
      thread_ = thread("millrace-file", [this] { work(); });
      return true;
    } catch (...) {  // no thread, or no memory for one
      return false;
    }
  }

  void work() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
      while (waiting_.empty() && !stopping_) changed_.wait(lock);
      if (waiting_.empty()) return;
      file_operation& op = waiting_.pop();
      lock.unlock();
      const std::int64_t result = perform(op.request());
      lock.lock();
      send_home(op, result);
    }
  }

  // With the mutex held. The lock order is this mutex, then the executor's inbox.
  void send_home(file_operation& op, std::int64_t result) noexcept {
    file_queue::set_result(op, result);
    const bool first = finished_.empty();
    finished_.push(op, file_queue::place::kernel);
    if (first) executor_.post_remote(home_);
  }

  void arrive() noexcept {
    file_queue arrived;
    {
      std::lock_guard lock(mutex_);
      arrived.swap(finished_);
    }
    while (!arrived.empty()) {
      file_operation& op = arrived.pop();
      executor_.operation_finished();
      file_queue::complete(op, file_queue::result(op));
    }
  }

  static std::int64_t perform(const file_request& r) noexcept {
    for (;;) {
      const std::int64_t result = call(r);
      if (result >= 0) return result;
      if (errno != EINTR || r.what == file_request::kind::close) return -errno;  // closed all the same
    }
  }
  static std::int64_t call(const file_request& r) noexcept {
    const auto offset = static_cast<off_t>(r.offset);
    switch (r.what) {
      case file_request::kind::open:
        return ::open(r.path, r.flags, r.mode);
      case file_request::kind::stat:
        return ::statx(r.fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, r.status);
      case file_request::kind::read:
        return ::pread(r.fd, r.data, r.size, offset);
      case file_request::kind::write:
        return ::pwrite(r.fd, r.data, r.size, offset);
      case file_request::kind::close:
        return ::close(r.fd);
      case file_request::kind::sync:
        return ::fdatasync(r.fd);
    }
    errno = EINVAL;
    return -1;
  }

  executor& executor_;
  messenger home_;
  thread thread_;
  std::mutex mutex_;
  condition changed_;
  file_queue waiting_;
  file_queue finished_;
  bool stopping_ = false;
};

}  // namespace millrace::detail
