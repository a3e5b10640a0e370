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
#include <millrace/coro/detail/orphan_count.hpp>
#include <millrace/coro/spawned.hpp>

namespace millrace::detail {

/// A remote_node that calls a member function of what it is part of.
template <class Owner, void (Owner::*Run)() noexcept>
class message final : public remote_node {
 public:
  explicit message(Owner& owner) noexcept : owner_(owner) {}

 private:
  void run() noexcept override { (owner_.*Run)(); }
  Owner& owner_;
};

/// What runs on a loop for somebody on another thread, who is told when the loop fails.
class failure_listener : public waiter {
 public:
  virtual void loop_failed(const std::exception_ptr& failure) noexcept = 0;

 protected:
  failure_listener() noexcept = default;
  ~failure_listener() = default;
};

/// The listeners of an executor which may fail without anybody there to be told: a service of the loops on threads of
/// their own.
class failure_listeners final : public executor_service {
 public:
  failure_listeners() noexcept = default;
  void add(failure_listener& one) noexcept { listeners_.push(one); }
  /// Tells all of them, and who comes from now on asks for it. Of several failures the first counts.
  void fail(std::exception_ptr failure) noexcept {
    if (!failure_) failure_ = std::move(failure);
    while (!listeners_.empty()) listeners_.pop().loop_failed(failure_);
  }
  /// Null where the loop has not failed.
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
  /// Counts in `orphans` until it has ended.
  void drop(const std::shared_ptr<orphan_count>& orphans) noexcept;

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
  std::shared_ptr<orphan_count> orphans_;
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

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/detail/impl/remote_task.ipp>
#endif
