// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <memory>
#include <utility>

#include <millrace/coro/promise_base.hpp>
#include <millrace/io/detail/remote_task.hpp>

namespace millrace {

/// `T r = co_await run_on(other, make);` runs the task that `make()` returns on another executor and brings its result
/// or exception home.
///
/// `make` is moved to the heap at once, called on the other executor's thread, and destroyed, like the result, on this
/// one. The two executors share nothing else. Dropping the await, at any moment, destroys the task's frame on its own
/// thread, soon; this executor's drain() waits until that has happened. The other executor must be running, and outlive
/// this one's drain() or be a loop_thread that is destroyed after the await was dropped. `other` may be this executor.
/// Where g++ 12 is to be supported, name a lambda with captures that are not trivial and move it in.
template <class Callable>
class [[nodiscard("nothing runs until it is awaited")]] run_on {
 public:
  run_on(executor& other, Callable make)
      : other_(other), task_(std::make_unique<detail::remote_task_for<Callable>>(std::move(make))) {}

  class awaiter : private detail::waiting_awaiter {
   public:
    awaiter(executor& other, std::unique_ptr<detail::remote_task_for<Callable>> t, promise_base& promise) noexcept
        : waiting_awaiter(promise), other_(other), task_(t.release()) {}
    ~awaiter() { task_->drop(orphans()); }

    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      suspend(handle);
      task_->send(home(), other_, node());
    }
    typename detail::remote_task_for<Callable>::result_type await_resume() { return task_->take(); }

   private:
    executor& other_;
    detail::remote_task_for<Callable>* task_;
  };
  awaiter awaited_by(promise_base& promise) && {
    if (task_ == nullptr) detail::misused("run_on() was awaited twice");
    return awaiter(other_, std::move(task_), promise);
  }

 private:
  executor& other_;
  std::unique_ptr<detail::remote_task_for<Callable>> task_;
};

}  // namespace millrace
