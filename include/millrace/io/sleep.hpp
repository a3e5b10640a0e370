// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>

#include <millrace/base/clock.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace::inline MILLRACE_ABI {

/// `co_await sleep_until(t)`: waits until the executor's clock has reached `t`. Always goes through the run queue, also
/// when `t` is past. On a virtual-time loop it takes no real time. Dropping it disarms the timer.
class sleep_until {
 public:
  explicit sleep_until(time_point due) noexcept : due_(due) {}

  class awaiter : private timer_node, private detail::waiting_awaiter {
   public:
    awaiter(time_point due, promise_base& promise) noexcept : waiting_awaiter(promise), due_(due) {}
    ~awaiter() override { home().remove_timer(*this); }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      suspend(handle);
      home().add_timer(*this, due_);
    }
    void await_resume() const noexcept {}

   private:
    void fire() noexcept override { wake(); }

    time_point due_;
  };
  awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(due_, promise); }

 private:
  time_point due_;
};

/// `co_await sleep_for(d)`: waits for `d` of the executor's clock, counted from the await. See sleep_until.
class sleep_for {
 public:
  explicit sleep_for(duration d) noexcept : duration_(d) {}

  sleep_until::awaiter awaited_by(promise_base& promise) const noexcept {
    return sleep_until::awaiter(detail::added(promise.get_executor().now(), duration_), promise);
  }

 private:
  duration duration_;
};

}  // namespace millrace
