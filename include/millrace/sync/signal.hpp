// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>

#include <millrace/base/wait_list.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace {

/// A condition variable for coroutines of one executor: `while (!condition) co_await changed.wait();` and, wherever
/// the condition may have changed, `changed.notify()`.
///
/// notify() wakes everybody who waits at that moment, through the run queue; it remembers nothing. Since coroutines of
/// one executor interleave only at awaits, a test followed at once by wait() misses no notification. Dropping a wait
/// unlinks it. The signal must outlive its waiters.
class signal {
 public:
  class awaiter : public waiter {
   public:
    awaiter(signal& s, promise_base& promise) noexcept : signal_(s), promise_(promise) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      node_.set(handle, promise_.stage());
      signal_.waiters_.push(*this);
    }
    void await_resume() const noexcept {}

   private:
    friend class signal;
    signal& signal_;
    promise_base& promise_;
    ready_node node_;
  };
  class awaitable {
   public:
    explicit awaitable(signal& s) noexcept : signal_(&s) {}
    awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(*signal_, promise); }

   private:
    signal* signal_;
  };

  awaitable wait() noexcept { return awaitable(*this); }

  void notify() noexcept {
    while (!waiters_.empty()) {
      awaiter& a = waiters_.pop();
      a.promise_.get_executor().post(a.node_);
    }
  }

 private:
  wait_list<awaiter> waiters_;
};

}  // namespace millrace
