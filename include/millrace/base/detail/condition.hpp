// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include <pthread.h>

namespace millrace::detail {

/// A condition variable for a std::mutex: std::condition_variable without its header, which brings stop tokens,
/// semaphores and waiting on atomics along and takes 20 ms to compile (g++ 12, -O0).
class condition {
 public:
  condition() noexcept = default;
  condition(const condition&) = delete;
  condition& operator=(const condition&) = delete;
  ~condition() { ::pthread_cond_destroy(&variable_); }

  /// Lets go of the lock, waits for a notification, and has the lock again on return. It may return without one: call
  /// it in a loop that looks at what is waited for.
  void wait(std::unique_lock<std::mutex>& lock) noexcept {
    ::pthread_cond_wait(&variable_, lock.mutex()->native_handle());
  }
  void notify_one() noexcept { ::pthread_cond_signal(&variable_); }
  void notify_all() noexcept { ::pthread_cond_broadcast(&variable_); }

 private:
  pthread_cond_t variable_ = PTHREAD_COND_INITIALIZER;
};

}  // namespace millrace::detail
