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
  class awaiter : public waiter {
   public:
    awaiter(event& e, promise_base& promise) noexcept : event_(e), promise_(promise) {}
    bool await_ready() const noexcept { return event_.set_; }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      node_.set(handle, promise_.stage());
      event_.waiters_.push(*this);
    }
    void await_resume() const noexcept {}

   private:
    friend class event;
    event& event_;
    promise_base& promise_;
    ready_node node_;
  };
  class awaitable {
   public:
    explicit awaitable(event& e) noexcept : event_(&e) {}
    awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(*event_, promise); }

   private:
    event* event_;
  };

  bool is_set() const noexcept { return set_; }
  awaitable wait() noexcept { return awaitable(*this); }
  void set() noexcept {
    set_ = true;
    while (!waiters_.empty()) {
      awaiter& a = waiters_.pop();
      a.promise_.get_executor().post(a.node_);
    }
  }
  void reset() noexcept { set_ = false; }

 private:
  wait_list<awaiter> waiters_;
  bool set_ = false;
};

}  // namespace millrace
