// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include <millrace/coro/spawned.hpp>

namespace millrace {

/// Runs `t` to its end on `ex`, on the calling thread, and returns its result or throws its exception: the way from
/// ordinary code into coroutines. What the task left behind (orphaned operations) is drained before it returns. Where
/// the executor itself fails, that is thrown and the task dropped; usage_error when `ex` is running already.
template <class T>
T block_on(executor& ex, task<T> t, stage_record* stage = nullptr) {
  class drained {
   public:
    explicit drained(executor& e) noexcept : executor_(e) {}
    drained(const drained&) = delete;
    drained& operator=(const drained&) = delete;
    ~drained() {
      if (over_) return;
      try {
        executor_.drain();
      } catch (...) {  // the exception that is on its way says more
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
  spawned<T> running(ex, std::move(t), stage);
  ex.run_until([&] { return running.done(); });
  // The frame is destroyed before what it leaves behind is waited for.
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
