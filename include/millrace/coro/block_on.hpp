// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include <millrace/coro/spawned.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Runs `t` to its end on an executor, on the calling thread, and returns its result or throws its exception: the way
/// from ordinary code into coroutines, `block_on(loop, f())`. Operations that the task has left in progress are drained
/// before it returns. If the executor itself fails, that is thrown and the task dropped; usage_error if the executor is
/// running already.
template <class T>
T block_on(const coroutine_context& context, task<T> t) {
  executor& ex = context.get_executor();
  class drained {
   public:
    explicit drained(executor& e) noexcept : executor_(e) {}
    drained(const drained&) = delete;
    drained& operator=(const drained&) = delete;
    ~drained() {
      if (over_) return;
      try {
        executor_.drain();
      } catch (...) {  // the exception that is being thrown says more
      }
    }
    void drain() {
      over_ = true;
      executor_.drain();
    }

   private:
    executor& executor_;
    bool over_ = false;
  } left(ex);
  spawned<T> running(context, std::move(t));
  ex.run_until([&] { return running.done(); });
  // The frame is destroyed first, then the operations that it has left in progress are waited for.
  if constexpr (std::is_void_v<T>) {
    std::exchange(running, spawned<T>()).take();
    left.drain();
  } else {
    T result = std::exchange(running, spawned<T>()).take();
    left.drain();
    return result;
  }
}

}  // namespace millrace
