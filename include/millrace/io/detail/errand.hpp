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
#include <millrace/coro/detail/away_count.hpp>
#include <millrace/coro/started.hpp>

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
class guest : public waiter {
 public:
  virtual void loop_failed(const std::exception_ptr& failure) noexcept = 0;

 protected:
  guest() noexcept = default;
  ~guest() = default;
};

/// The guests of an executor which may fail without anybody there to be told: a service of the loops on threads of
/// their own.
class guest_list final : public executor_service {
 public:
  guest_list() noexcept = default;
  void add(guest& g) noexcept { guests_.push(g); }
  /// Tells all of them, and who comes from now on asks for it. Of several failures the first counts.
  void fail(std::exception_ptr failure) noexcept {
    if (!failure_) failure_ = std::move(failure);
    while (!guests_.empty()) guests_.pop().loop_failed(failure_);
  }
  /// Null where the loop has not failed.
  const std::exception_ptr& failure() const noexcept { return failure_; }

 private:
  wait_list<guest> guests_;
  std::exception_ptr failure_;
};

/// A task that runs on another executor ("away") for a coroutine at home; the protocol of run_on(), without types.
///
/// Messages: `depart` to away starts the task; when that has ended, `unpack` to away destroys its frame (a task cannot
/// free its own), and `arrive` goes home. Dropping the waiter sends `recall` away, which destroys the frame wherever it
/// is, and is answered by `recalled`. The errand is deleted at home when every message sent has been answered; until
/// then home counts it as an operation, and from `depart` to `arrive` away does.
class errand : public guest {
 public:
  errand(const errand&) = delete;
  errand& operator=(const errand&) = delete;
  virtual ~errand() = default;

  // ---- at home

  void send(executor& home, executor& away, ready_node& sender) noexcept;
  /// Counts as `away` until it has ended.
  void abandon(const std::shared_ptr<away_count>& away) noexcept;

 protected:
  errand() noexcept = default;

  // ---- away; implemented with the task's type

  /// Starts the task on `away`; it calls over() at its end.
  virtual void start(executor& away) = 0;
  /// Destroys the task's frame, if there is one.
  virtual void destroy() noexcept = 0;

  void over() noexcept {
    unpacking_ = true;
    away_->post_remote(unpack_);
  }
  void failed() noexcept { error_ = std::current_exception(); }

  std::exception_ptr error_;

 private:
  void on_depart() noexcept;
  void on_unpack() noexcept { go_home(); }
  void on_recall() noexcept {
    if (!left_ && !unpacking_) go_home();
    home_->post_remote(recalled_);
  }
  void loop_failed(const std::exception_ptr& failure) noexcept override {
    if (!unpacking_) fail(failure);  // else it has its result, and its message comes
  }
  void fail(std::exception_ptr failure) noexcept {
    error_ = std::move(failure);
    go_home();
  }
  // Unless it is being recalled, home may delete the errand from the post on.
  void go_home() noexcept;

  // ---- at home

  void on_arrive() noexcept {
    arrived_ = true;
    if (!recalling_ || answered_) finish();
  }
  void on_recalled() noexcept {
    answered_ = true;
    if (arrived_) finish();
  }
  void finish() noexcept;

  message<errand, &errand::on_depart> depart_{*this};
  message<errand, &errand::on_unpack> unpack_{*this};
  message<errand, &errand::on_recall> recall_{*this};
  message<errand, &errand::on_arrive> arrive_{*this};
  message<errand, &errand::on_recalled> recalled_{*this};
  executor* home_ = nullptr;
  executor* away_ = nullptr;
  ready_node* waiter_ = nullptr;
  std::shared_ptr<away_count> dropped_by_;
  bool left_ = false;  // away
  bool unpacking_ = false;
  bool arrived_ = false;  // at home
  bool recalling_ = false;
  bool answered_ = false;
};

/// An errand for `callable()`, a task. The callable lives until the errand ends, the frame only away.
template <class Callable>
class errand_for final : public errand {
 public:
  using task_type = std::invoke_result_t<Callable&>;
  using result_type = typename task_type::value_type;

  explicit errand_for(Callable&& c) : callable_(std::move(c)) {}

  result_type take() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if constexpr (!std::is_void_v<result_type>) return std::move(*result_);
  }

 private:
  void start(executor& away) override { running_ = started<void>(away, drive(*this)); }
  void destroy() noexcept override { running_ = started<void>(); }

  static task<void> drive(errand_for& self) {
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
    self.over();
  }

  Callable callable_;
  std::optional<std::conditional_t<std::is_void_v<result_type>, char, result_type>> result_;
  started<void> running_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/detail/impl/errand.ipp>
#endif
