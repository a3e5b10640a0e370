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
/// notify() wakes all that wait at that moment, through the run queue; it remembers nothing. Since coroutines of
/// one executor interleave only at awaits, a test followed at once by wait() misses no notification. Dropping a wait
/// unlinks it. The notifier must outlive its waiters.
class notifier {
 public:
  class awaiter : public waiter, private detail::waiting_awaiter {
   public:
    awaiter(notifier& s, promise_base& promise) noexcept : waiting_awaiter(promise), notifier_(s) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      suspend(handle);
      notifier_.waiters_.push(*this);
    }
    void await_resume() const noexcept {}

   private:
    friend class notifier;
    notifier& notifier_;
  };
  using awaitable = detail::awaitable_of<awaiter, notifier>;

  awaitable wait() noexcept { return awaitable(*this); }

  void notify() noexcept {
    while (!waiters_.empty()) waiters_.pop().wake();
  }

 private:
  wait_list<awaiter> waiters_;
};

}  // namespace millrace
