// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>

#include <millrace/base/wait_list.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A flag that coroutines of one executor wait for: `co_await e.wait()` does not wait while it is set.
///
/// set() wakes every waiter through the run queue; it stays set until reset(). A waiter that was woken resumes even if
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
