// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>

#include <millrace/base/wait_list.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace {

/// A flag that coroutines of one executor wait for: `co_await e.wait()` goes on at once while it is set.
///
/// set() wakes every waiter through the run queue; it stays set until reset(). A waiter that was woken goes on even if
/// the event is reset before it runs. Dropping a wait unlinks it. The event must outlive its waiters.
class event {
 public:
  class awaiter : public waiter, private detail::waiting_awaiter {
   public:
    awaiter(event& e, promise_base& promise) noexcept : waiting_awaiter(promise), event_(e) {}
    bool await_ready() const noexcept { return event_.set_; }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      suspend(handle);
      event_.waiters_.push(*this);
    }
    void await_resume() const noexcept {}

   private:
    friend class event;
    event& event_;
  };
  using awaitable = detail::awaitable_of<awaiter, event>;

  bool is_set() const noexcept { return set_; }
  awaitable wait() noexcept { return awaitable(*this); }
  void set() noexcept {
    set_ = true;
    while (!waiters_.empty()) waiters_.pop().wake();
  }
  void reset() noexcept { set_ = false; }

 private:
  wait_list<awaiter> waiters_;
  bool set_ = false;
};

}  // namespace millrace
