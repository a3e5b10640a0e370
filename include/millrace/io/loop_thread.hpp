// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <time.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

#include <millrace/io/run_on.hpp>
#include <millrace/loop/detail/thread.hpp>
#include <millrace/loop/event_loop.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A thread with an event loop, for a runtime (`parts`): made, run and destroyed on the thread itself. Work comes by
/// run_on() or executor::post_remote(). If the loop fails in the kernel, all waiters for tasks of run_on(), and later
/// calls of run_on(), get the exception, and the loop continues for messages alone.
///
/// The destructor lets the loop take everything that was posted before, waits for the operations announced to it
/// (tasks sent by run_on() that were not dropped among them) and joins the thread; it must run on another one.
class loop_thread {
 public:
  /// Throws the exceptions of make_event_loop(), and io_error when there is no thread.
  explicit loop_thread(const loop_options& o = {}, runtime_parts* parts = nullptr);
  loop_thread(const loop_thread&) = delete;
  loop_thread& operator=(const loop_thread&) = delete;
  ~loop_thread() {
    if (!process_.here()) {
      thread_.forget();
      return;
    }
    loop_->post_remote(stop_message_);
    thread_.join();
  }

  /// Waits until everything that was begun on the loop has ended: orphaned operations and background clean-up. The loop
  /// keeps running. Threads whose loops send each other tasks are all drained before the first ends.
  void drain() noexcept;

  /// Keeps the thread on these CPUs. Returns an errno, 0 for success. One thread at a time.
  int keep_on(const cpu_set_t& cpus) noexcept { return thread_.keep_on(cpus); }

  /// For run_on() and post_remote(); the rest of it belongs to its thread.
  event_loop& loop() const noexcept { return *loop_; }

 private:
  void body() noexcept;
  bool ran_until_stopped(event_loop& loop, detail::failure_listeners& listeners) noexcept;
  void say_drained() noexcept;
  void stop() noexcept { stopping_ = true; }
  void begin_drain() noexcept { draining_since_ = monotonic_ns(); }

  const detail::own_process process_;
  const loop_options options_;
  runtime_parts* const parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  event_loop* loop_ = nullptr;
  std::exception_ptr error_;
  bool drained_ = false;
  bool stopping_ = false;            // of the loop's thread
  std::int64_t draining_since_ = 0;  // likewise; 0: not draining
  // In full: for nvcc the name alone is not complete here.
  detail::message<loop_thread, &loop_thread::stop> stop_message_{*this};
  detail::message<loop_thread, &loop_thread::begin_drain> drain_message_{*this};
  detail::thread thread_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/loop_thread.ipp>
#endif
