// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/coro/task.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// Notified when a spawned task ends.
struct spawned_state final : completion {
  void completed() noexcept override {
    done = true;
    if (waiter != nullptr) ex->post(*waiter);
  }
  executor* ex = nullptr;
  ready_node* waiter = nullptr;
  bool done = false;
};

}  // namespace detail

/// A task that runs in the background: started through the run queue, awaited or not, and owned by this object. Stages
/// work ahead of their consumers with it.
///
/// `T r = co_await s;` waits for the end and takes the result or the exception, once; one coroutine may wait, and may
/// go on waiting while the object is moved, not when it is dropped or replaced. Dropping it stops the task at once,
/// wherever it is. An exception of a task that is never awaited is dropped with it.
template <class T = void>
class [[nodiscard("dropping a spawned task stops it")]] spawned {
 public:
  using value_type = T;
  class end;

  spawned() noexcept = default;

  /// Queues `t` to run in `context`; an executor is enough for tasks that belong to no run.
  spawned(const coroutine_context& context, task<T> t) : task_(std::move(t)) {
    if (!task_) detail::misused("an empty task was spawned: it was moved from, or never made");
    auto& p = task_.handle_.promise();
    state_ = std::make_unique<state>();
    p.bind(context);
    p.set_completion(state_.get());
    state_->ex = &context.get_executor();
    p.post_self(task_.handle_);
  }
  spawned(spawned&& other) noexcept = default;
  spawned& operator=(spawned&& other) noexcept {
    if (this != &other) {
      task_ = task<T>();  // the frame goes before the state that it reports to
      state_ = std::move(other.state_);
      task_ = std::move(other.task_);
    }
    return *this;
  }
  ~spawned() = default;

  explicit operator bool() const noexcept { return state_ != nullptr; }
  /// Awaitable for the end alone: the result, or the exception, stays for take() or an await.
  end ended() noexcept { return end(*this); }
  bool done() const noexcept { return state_ != nullptr && state_->done; }

  /// Takes the result of a task that is done(), or throws its exception.
  T take() {
    if (!done()) detail::misused("the result of a spawned task was taken before the task is done");
    return task_.handle_.promise().take();
  }

  class awaiter;
  awaiter awaited_by(promise_base& parent) {
    if (state_ == nullptr) detail::misused("an empty spawned task was awaited: it was moved from, or never spawned");
    if (state_->waiter != nullptr) detail::misused("one coroutine may wait for a spawned task, and one does");
    return awaiter(*state_, task_.handle_, parent.stage());
  }

 private:
  using state = detail::spawned_state;

  std::unique_ptr<state> state_;
  task<T> task_;  // declared last: destroyed first, it reports to state_
};

/// Refers to the state and the coroutine, which stay where they are when the spawned object moves.
template <class T>
class spawned<T>::awaiter {
 public:
  awaiter(state& s, std::coroutine_handle<typename task<T>::promise_type> running, stage_record* stage) noexcept
      : state_(s), running_(running), stage_(stage) {}
  awaiter(const awaiter&) = delete;
  awaiter& operator=(const awaiter&) = delete;
  ~awaiter() {
    if (waiting_) state_.waiter = nullptr;
  }
  bool await_ready() const noexcept { return state_.done; }
  void await_suspend(std::coroutine_handle<> parent) noexcept {
    node_.set(parent, stage_);
    state_.waiter = &node_;
    waiting_ = true;
  }
  T await_resume() {
    if (std::exchange(waiting_, false)) state_.waiter = nullptr;
    return running_.promise().take();
  }

 private:
  state& state_;
  std::coroutine_handle<typename task<T>::promise_type> running_;
  stage_record* stage_;
  ready_node node_;
  bool waiting_ = false;
};

/// See spawned::ended().
template <class T>
class spawned<T>::end {
 public:
  explicit end(spawned& s) noexcept : spawned_(&s) {}
  class awaiter : public spawned<T>::awaiter {
   public:
    using spawned<T>::awaiter::awaiter;
    void await_resume() const noexcept {}
  };
  awaiter awaited_by(promise_base& parent) const {
    if (!*spawned_) {
      detail::misused("the end of an empty spawned task was awaited: it was moved from, or never spawned");
    }
    state& s = *spawned_->state_;
    if (s.waiter != nullptr) detail::misused("one coroutine may wait for a spawned task, and one does");
    return awaiter(s, spawned_->task_.handle_, parent.stage());
  }

 private:
  spawned* spawned_;
};

}  // namespace millrace
