// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

#include <millrace/base/compiler.hpp>
#include <millrace/io/loop_thread.hpp>
#include <millrace/loop/make_event_loop.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE loop_thread::loop_thread(const loop_options& o, runtime_parts* parts) : options_(o), parts_(parts) {
  thread_ = detail::thread("millrace-loop", [this] { body(); });
  std::unique_lock lock(mutex_);
  while (loop_ == nullptr && !error_) changed_.wait(lock);
  if (error_) {
    lock.unlock();
    thread_.join();
    std::rethrow_exception(error_);
  }
}

MILLRACE_INLINE void loop_thread::drain() noexcept {
  std::unique_lock lock(mutex_);
  drained_ = false;
  loop_->post_remote(drain_message_);
  while (!drained_) changed_.wait(lock);
}

MILLRACE_INLINE void loop_thread::body() noexcept {
  std::unique_ptr<event_loop> loop;
  detail::failure_listeners* listeners = nullptr;
  {
    std::lock_guard lock(mutex_);
    try {
      loop = make_event_loop(options_);
      if (parts_ != nullptr) loop->set_runtime(*parts_);
      listeners = &loop->service<detail::failure_listeners>();
      loop_ = loop.get();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  changed_.notify_one();  // the constructor, which waits for this, joins before the members go
  if (loop_ == nullptr) return;
  while (!ran_until_stopped(*loop, *listeners)) {
    const timespec moment{0, 1'000'000};  // not woken by messages any more, the thread looks for them
    ::nanosleep(&moment, nullptr);
  }
}

MILLRACE_INLINE bool loop_thread::ran_until_stopped(event_loop& loop, detail::failure_listeners& listeners) noexcept {
  try {
    for (;;) {
      loop.run_until([this] { return stopping_ || draining_since_ != 0; });
      loop.drain();
      if (stopping_) return true;
      say_drained();
    }
  } catch (...) {
    listeners.fail(std::current_exception());
    constexpr std::int64_t longest = 30'000'000'000;  // as the executor's destructor, which asserts then
    const bool enough = loop.operations() == 0 || monotonic_ns() - draining_since_ > longest;
    if (draining_since_ != 0 && enough) say_drained();
    return stopping_;  // the destructor waits for the rest
  }
}

MILLRACE_INLINE void loop_thread::say_drained() noexcept {
  draining_since_ = 0;
  const std::lock_guard lock(mutex_);
  drained_ = true;
  changed_.notify_one();
}

}  // namespace millrace
