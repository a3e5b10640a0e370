// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <millrace/coro/task.hpp>

namespace millrace {

/// A task that runs by itself: started through the run queue, whether or not somebody awaits it, and owned by whoever
/// holds this object. It is how stages work ahead.
///
/// `T r = co_await s;` waits for the end and takes the result or the exception, once; one coroutine may wait. Dropping
/// it stops the task at once, wherever it is. An exception of a task that is never awaited is dropped with it.
template <class T = void>
class [[nodiscard("dropping a started task stops it")]] started {
 public:
  using value_type = T;

  started() noexcept = default;

  /// Queues `t` on `ex`, on the account of `stage`.
  started(executor& ex, task<T> t, stage_record* stage = nullptr) : task_(std::move(t)) {
    auto& p = task_.handle_.promise();
    state_ = std::make_unique<state>();
    p.bind(ex, stage);
    p.set_completion(state_.get());
    state_->ex = &ex;
    p.post_self(task_.handle_);
  }
  started(started&& other) noexcept = default;
  started& operator=(started&& other) noexcept {
    if (this != &other) {
      task_ = task<T>();  // the frame goes before the state that it reports to
      state_ = std::move(other.state_);
      task_ = std::move(other.task_);
    }
    return *this;
  }
  ~started() = default;

  explicit operator bool() const noexcept { return state_ != nullptr; }
  bool done() const noexcept { return state_ != nullptr && state_->done; }

  /// Takes the result of a task that is done(), or throws its exception.
  T take() { return task_.handle_.promise().take(); }

  class awaiter {
   public:
    awaiter(started& s, stage_record* stage) noexcept : started_(s), stage_(stage) {}
    awaiter(const awaiter&) = delete;
    awaiter& operator=(const awaiter&) = delete;
    ~awaiter() {
      if (waiting_) started_.state_->waiter = nullptr;
    }
    bool await_ready() const noexcept { return started_.done(); }
    void await_suspend(std::coroutine_handle<> parent) noexcept {
      node_.set(parent, stage_);
      started_.state_->waiter = &node_;
      waiting_ = true;
    }
    T await_resume() {
      waiting_ = false;
      started_.state_->waiter = nullptr;
      return started_.take();
    }

   private:
    started& started_;
    stage_record* stage_;
    ready_node node_;
    bool waiting_ = false;
  };
  awaiter awaited_by(promise_base& parent) noexcept { return awaiter(*this, parent.stage()); }

 private:
  struct state final : detail::completion {
    void completed() noexcept override {
      done = true;
      if (waiter != nullptr) ex->post(*waiter);
    }
    executor* ex = nullptr;
    ready_node* waiter = nullptr;
    bool done = false;
  };

  std::unique_ptr<state> state_;
  task<T> task_;  // declared last: destroyed first, it reports to state_
};

}  // namespace millrace
