// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <mutex>

#include <time.h>

#include <millrace/base/detail/condition.hpp>
#include <millrace/io/detail/errand.hpp>
#include <millrace/loop/detail/thread.hpp>
#include <millrace/loop/make_event_loop.hpp>

namespace millrace {

/// A thread with an event loop, for groups of loops: made, run and destroyed on the thread itself. Work comes by
/// run_on() or executor::post_remote(). Where the kernel side of the loop fails, whoever waits for a task of run_on(), or
/// sends one from then on, gets the exception, and the loop lives on for messages alone.
///
/// The destructor lets the loop take everything that was posted before, waits for the operations announced to it
/// (tasks sent by run_on() that were not dropped among them) and joins the thread; it must run on another one.
template <class Unused = void>
class basic_loop_thread {
 public:
  /// Throws what make_event_loop() throws, and std::system_error when there is no thread.
  explicit basic_loop_thread(const loop_options& o = {}) : options_(o) {
    thread_ = detail::thread("millrace-loop", [this] { body(); });
    std::unique_lock lock(mutex_);
    while (loop_ == nullptr && !error_) changed_.wait(lock);
    if (error_) {
      lock.unlock();
      thread_.join();
      std::rethrow_exception(error_);
    }
  }
  basic_loop_thread(const basic_loop_thread&) = delete;
  basic_loop_thread& operator=(const basic_loop_thread&) = delete;
  ~basic_loop_thread() {
    loop_->post_remote(stop_message_);
    thread_.join();
  }

  /// For run_on() and post_remote(); the rest of it belongs to its thread.
  event_loop& loop() const noexcept { return *loop_; }

 private:
  void body() noexcept {
    std::unique_ptr<event_loop> loop;
    detail::errand_list* errands = nullptr;
    {
      std::lock_guard lock(mutex_);
      try {
        loop = make_event_loop(options_);
        errands = &loop->service<detail::errand_list>([] { return std::make_unique<detail::errand_list>(); });
        loop_ = loop.get();
      } catch (...) {
        error_ = std::current_exception();
      }
    }
    changed_.notify_one();  // the constructor, which waits for this, joins before the members go
    if (loop_ == nullptr) return;
    while (!ran_until_stopped(*loop, *errands)) {
      const timespec moment{0, 1'000'000};  // not woken by messages any more, the thread looks for them
      ::nanosleep(&moment, nullptr);
    }
  }
  bool ran_until_stopped(event_loop& loop, detail::errand_list& errands) noexcept {
    try {
      loop.run_until([this] { return stopping_; });
      loop.drain();
      return true;
    } catch (...) {
      errands.fail(std::current_exception());
      return stopping_;  // what is left to be waited for is the destructor's
    }
  }
  void stop() noexcept { stopping_ = true; }

  const loop_options options_;
  std::mutex mutex_;
  detail::condition changed_;
  event_loop* loop_ = nullptr;
  std::exception_ptr error_;
  bool stopping_ = false;  // of the loop's thread
  // In full: for nvcc the name alone is not complete here.
  detail::message<basic_loop_thread<Unused>, &basic_loop_thread<Unused>::stop> stop_message_{*this};
  detail::thread thread_;
};
using loop_thread = basic_loop_thread<>;

}  // namespace millrace
