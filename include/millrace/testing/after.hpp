// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>

#include <millrace/coro/promise_base.hpp>

namespace millrace::testing {

/// `co_await after(5ms);` waits by the executor's clock: virtual time on a virtual_loop. Dropping it disarms the timer.
class after {
 public:
  explicit after(duration d) noexcept : duration_(d) {}

  class awaiter : public timer_node {
   public:
    awaiter(duration d, promise_base& promise) noexcept : duration_(d), promise_(promise) {}
    ~awaiter() override { promise_.get_executor().remove_timer(*this); }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
      node_.set(handle, promise_.stage());
      executor& ex = promise_.get_executor();
      ex.add_timer(*this, ex.now() + duration_);
    }
    void await_resume() const noexcept {}

   private:
    void fire() noexcept override { promise_.get_executor().post(node_); }

    duration duration_;
    promise_base& promise_;
    ready_node node_;
  };
  awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(duration_, promise); }

 private:
  duration duration_;
};

}  // namespace millrace::testing
