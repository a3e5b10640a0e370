// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <millrace/base/wait_list.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/stage_record.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A remote_node that calls a member function of the object that it is part of.
template <class Owner, void (Owner::*Run)() noexcept>
class message final : public remote_node {
 public:
  explicit message(Owner& owner) noexcept : owner_(owner) {}

 private:
  void run() noexcept override { (owner_.*Run)(); }
  Owner& owner_;
};

/// A task on a loop that another thread waits for: it is notified if the loop fails.
class failure_listener : public waiter {
 public:
  virtual void loop_failed(const std::exception_ptr& failure) noexcept = 0;

 protected:
  failure_listener() noexcept = default;
  ~failure_listener() = default;
};

/// The tasks to notify if an executor fails, which has no caller to throw to: a service of loops on threads of their
/// own.
class failure_listeners final : public executor_service {
 public:
  failure_listeners() noexcept = default;
  void add(failure_listener& one) noexcept { listeners_.push(one); }
  /// Notifies all listeners. Listeners added later receive the failure immediately. The first of several failures
  /// counts.
  void fail(std::exception_ptr failure) noexcept {
    if (!failure_) failure_ = std::move(failure);
    while (!listeners_.empty()) listeners_.pop().loop_failed(failure_);
  }
  /// Null if the loop has not failed.
  const std::exception_ptr& failure() const noexcept { return failure_; }

 private:
  wait_list<failure_listener> listeners_;
  std::exception_ptr failure_;
};

/// A task that runs on another executor ("away") for a coroutine at home; the protocol of run_on(), without types.
///
/// Messages: `start` to away starts the task; when that has ended, `end` to away destroys its frame (a task cannot
/// free its own), and `result` goes home. Dropping the waiter sends `cancel` away, which destroys the frame wherever it
/// is, and is answered by `cancelled`. It is deleted at home when every message sent has been answered; until
/// then home counts it as an operation, and from `start` to `result` away does.
class remote_task : public failure_listener {
 public:
  remote_task(const remote_task&) = delete;
  remote_task& operator=(const remote_task&) = delete;
  virtual ~remote_task() = default;

  // ---- at home

  void send(executor& home, executor& away, ready_node& sender) noexcept;
  /// Counts in `abandoned` until it has ended.
  void drop(const std::shared_ptr<wait_group>& abandoned) noexcept;

 protected:
  remote_task() noexcept = default;

  // ---- away; implemented with the task's type

  /// Starts the task on `away`; it calls finished() at its end.
  virtual void start_task(executor& away) = 0;
  /// Destroys the task's frame, if there is one.
  virtual void destroy_task() noexcept = 0;

  void finished() noexcept {
    ended_ = true;
    away_->post_remote(end_);
  }
  void failed() noexcept { error_ = std::current_exception(); }

  std::exception_ptr error_;

 private:
  void on_start() noexcept;
  void on_end() noexcept { return_result(); }
  void on_cancel() noexcept {
    if (!returned_ && !ended_) return_result();
    home_->post_remote(cancelled_);
  }
  void loop_failed(const std::exception_ptr& failure) noexcept override {
    if (!ended_) fail(failure);  // else it has its result, and its message comes
  }
  void fail(std::exception_ptr failure) noexcept {
    error_ = std::move(failure);
    return_result();
  }
  // Unless it is being cancelled, home may delete this from the post on.
  void return_result() noexcept;

  // ---- at home

  void on_result() noexcept {
    has_result_ = true;
    if (!cancelling_ || has_answer_) complete();
  }
  void on_cancelled() noexcept {
    has_answer_ = true;
    if (has_result_) complete();
  }
  void complete() noexcept;

  message<remote_task, &remote_task::on_start> start_{*this};
  message<remote_task, &remote_task::on_end> end_{*this};
  message<remote_task, &remote_task::on_cancel> cancel_{*this};
  message<remote_task, &remote_task::on_result> result_message_{*this};
  message<remote_task, &remote_task::on_cancelled> cancelled_{*this};
  executor* home_ = nullptr;
  executor* away_ = nullptr;
  ready_node* waiter_ = nullptr;
  std::shared_ptr<wait_group> abandoned_;
  bool returned_ = false;  // away
  bool ended_ = false;
  bool has_result_ = false;  // at home
  bool cancelling_ = false;
  bool has_answer_ = false;
};

/// A remote task for `callable()`, a task. The callable lives until the remote task ends, the frame only away.
template <class Callable>
class remote_task_for final : public remote_task {
 public:
  using task_type = std::invoke_result_t<Callable&>;
  using result_type = typename task_type::value_type;

  explicit remote_task_for(Callable&& c) : callable_(std::move(c)) {}

  result_type take() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if constexpr (!std::is_void_v<result_type>) return std::move(*result_);
  }

 private:
  void start_task(executor& away) override { task_ = spawned<void>(away, drive(*this)); }
  void destroy_task() noexcept override { task_ = spawned<void>(); }

  static task<void> drive(remote_task_for& self) {
    try {
      task_type t = self.callable_();
      if constexpr (std::is_void_v<result_type>) {
        co_await std::move(t);
      } else {
        self.result_.emplace(co_await std::move(t));
      }
    } catch (...) {
      self.failed();
    }
    self.finished();
  }

  Callable callable_;
  std::optional<std::conditional_t<std::is_void_v<result_type>, char, result_type>> result_;
  spawned<void> task_;
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// `T r = co_await run_on(other, make);` runs the task that `make()` returns on another executor and brings its result
/// or exception home.
///
/// `make` is moved to the heap at once, called on the other executor's thread, and destroyed, like the result, on this
/// one. The two executors share nothing else. Dropping the await, at any moment, destroys the task's frame on its own
/// thread, soon; this executor's drain() waits until that has happened. The other executor must be running, and outlive
/// this one's drain() or be a loop_thread that is destroyed after the await was dropped. `other` may be this executor.
/// If g++ 12 is to be supported, name a lambda with captures that are not trivial and move it in.
template <class Callable>
class [[nodiscard("nothing runs until it is awaited")]] run_on {
 public:
  run_on(executor& other, Callable make)
      : other_(other), task_(std::make_unique<detail::remote_task_for<Callable>>(std::move(make))) {}

  class awaiter : private detail::waiting_awaiter {
   public:
    awaiter(executor& other, std::unique_ptr<detail::remote_task_for<Callable>> t, promise_base& promise) noexcept
        : waiting_awaiter(promise), other_(other), task_(t.release()) {}
    ~awaiter() { task_->drop(run().abandoned()); }

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
    other_.process().check("an event loop");
    return awaiter(other_, std::move(task_), promise);
  }

 private:
  executor& other_;
  std::unique_ptr<detail::remote_task_for<Callable>> task_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/run_on.ipp>
#endif
