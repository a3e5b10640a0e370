// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

#include <time.h>

#include <millrace/base/detail/condition.hpp>
#include <millrace/io/detail/remote_task.hpp>
#include <millrace/loop/detail/thread.hpp>
#include <millrace/loop/make_event_loop.hpp>

namespace millrace {

/// A thread with an event loop, for a runtime (`parts`): made, run and destroyed on the thread itself. Work comes by
/// run_on() or executor::post_remote(). Where the kernel side of the loop fails, whoever waits for a task of run_on(),
/// or sends one from then on, gets the exception, and the loop lives on for messages alone.
///
/// The destructor lets the loop take everything that was posted before, waits for the operations announced to it
/// (tasks sent by run_on() that were not dropped among them) and joins the thread; it must run on another one.
template <class Unused = void>
class basic_loop_thread {
 public:
  /// Throws what make_event_loop() throws, and std::system_error when there is no thread.
  explicit basic_loop_thread(const loop_options& o = {}, runtime_parts* parts = nullptr) : options_(o), parts_(parts) {
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

  /// Waits until everything that was begun on the loop has ended: operations that nobody waits for any more, clean-up in
  /// the background. The loop goes on. Threads whose loops send each other tasks are all drained before the first ends.
  void drain() noexcept {
    std::unique_lock lock(mutex_);
    drained_ = false;
    loop_->post_remote(drain_message_);
    while (!drained_) changed_.wait(lock);
  }

  /// For run_on() and post_remote(); the rest of it belongs to its thread.
  event_loop& loop() const noexcept { return *loop_; }

 private:
  void body() noexcept {
    std::unique_ptr<event_loop> loop;
    detail::guest_list* guests = nullptr;
    {
      std::lock_guard lock(mutex_);
      try {
        loop = make_event_loop(options_);
        loop->set_runtime(parts_);
        guests = &loop->service<detail::guest_list>([] { return std::make_unique<detail::guest_list>(); });
        loop_ = loop.get();
      } catch (...) {
        error_ = std::current_exception();
      }
    }
    changed_.notify_one();  // the constructor, which waits for this, joins before the members go
    if (loop_ == nullptr) return;
    while (!ran_until_stopped(*loop, *guests)) {
      const timespec moment{0, 1'000'000};  // not woken by messages any more, the thread looks for them
      ::nanosleep(&moment, nullptr);
    }
  }
  bool ran_until_stopped(event_loop& loop, detail::guest_list& guests) noexcept {
    try {
      for (;;) {
        loop.run_until([this] { return stopping_ || draining_since_ != 0; });
        loop.drain();
        if (stopping_) return true;
        say_drained();
      }
    } catch (...) {
      guests.fail(std::current_exception());
      constexpr std::int64_t longest = 30'000'000'000;  // as the executor's destructor, which asserts then
      const bool enough = loop.operations() == 0 || monotonic_ns() - draining_since_ > longest;
      if (draining_since_ != 0 && enough) say_drained();
      return stopping_;  // what is left to be waited for is the destructor's
    }
  }
  void say_drained() noexcept {
    draining_since_ = 0;
    const std::lock_guard lock(mutex_);
    drained_ = true;
    changed_.notify_one();
  }
  void stop() noexcept { stopping_ = true; }
  void begin_drain() noexcept { draining_since_ = monotonic_ns(); }

  const loop_options options_;
  runtime_parts* const parts_;
  std::mutex mutex_;
  detail::condition changed_;
  event_loop* loop_ = nullptr;
  std::exception_ptr error_;
  bool drained_ = false;
  bool stopping_ = false;            // of the loop's thread
  std::int64_t draining_since_ = 0;  // the same; 0: nobody has asked
  // In full: for nvcc the name alone is not complete here.
  detail::message<basic_loop_thread<Unused>, &basic_loop_thread<Unused>::stop> stop_message_{*this};
  detail::message<basic_loop_thread<Unused>, &basic_loop_thread<Unused>::begin_drain> drain_message_{*this};
  detail::thread thread_;
};
using loop_thread = basic_loop_thread<>;

}  // namespace millrace
