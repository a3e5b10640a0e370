// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>
#include <optional>
#include <type_traits>
#include <utility>

#include <millrace/coro/promise_base.hpp>

namespace millrace::inline MILLRACE_ABI {

template <class T>
class spawned;
template <class T>
class task;

namespace detail {

template <class T>
class branch;

/// Notified when a task is done; may post, must not resume.
class completion {
 public:
  virtual void completed() noexcept = 0;

 protected:
  ~completion() = default;
};

class task_promise_base : public promise_base {
 public:
  class final_awaiter {
   public:
    final_awaiter() noexcept = default;
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> handle) const noexcept {
      task_promise_base& p = handle.promise();
      if (p.completion_ != nullptr) p.completion_->completed();
      p.resume_continuation();
    }
    void await_resume() const noexcept {}
  };
  std::suspend_always initial_suspend() const noexcept { return {}; }
  final_awaiter final_suspend() const noexcept { return final_awaiter(); }
  void set_completion(completion* c) noexcept { completion_ = c; }

 private:
  completion* completion_ = nullptr;
};

template <class T>
class task_promise : public task_promise_base {
 public:
  task<T> get_return_object() noexcept { return task<T>(frame_of(*this)); }
  template <class U = T>
    requires std::is_constructible_v<T, U&&>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  T take() {
    rethrow_if_failed();
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
};

template <>
class task_promise<void> : public task_promise_base {
 public:
  task_promise() noexcept = default;  // without it an aggregate, which the coroutine's parameters would initialise
  task<void> get_return_object() noexcept;
  void return_void() noexcept {}
  void take() { rethrow_if_failed(); }
};

}  // namespace detail

/// A lazy coroutine with one result. It runs when it is awaited, on the awaiting coroutine's executor, and is awaited
/// at most once: `T x = co_await f();` or `co_await std::move(t);`.
///
/// Lifetime: the task owns its coroutine; its parameters live in the frame (values: rvalue references are refused by
/// the compiler, and the object of a reference to const must live until the task has ended). Cancellation: dropping the
/// task, started or not, destroys the frame and everything below it, at once; it must not be dropped from within
/// itself. Errors: an exception that leaves the body is thrown by the await. A child that finishes without waiting for
/// anything costs no trip through the run queue.
template <class T = void>
class [[nodiscard("a task does nothing until it is awaited")]] task {
 public:
  using promise_type = detail::task_promise<T>;
  using value_type = T;

  task() noexcept = default;
  task(task&& other) noexcept : handle_(other.release()) {}
  task& operator=(task&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = other.release();
    }
    return *this;
  }
  ~task() { reset(); }

  explicit operator bool() const noexcept { return handle_ != nullptr; }

  class awaiter {
   public:
    awaiter(std::coroutine_handle<promise_type> child, stage_record* parent_stage) noexcept
        : child_(child), parent_stage_(parent_stage) {}
    awaiter(const awaiter&) = delete;
    awaiter& operator=(const awaiter&) = delete;
    ~awaiter() {
      if (waiting_) child_.promise().set_continuation(nullptr, nullptr);
    }
    bool await_ready() {
      promise_type& p = child_.promise();
      executor& ex = p.get_executor();
      if (!ex.spend_inline()) {
        queued_ = true;
        return false;
      }
      child_.resume();  // nested: depth is the depth of the calls, as for plain functions
      return child_.done();
    }
    void await_suspend(std::coroutine_handle<> parent) noexcept {
      promise_type& p = child_.promise();
      p.set_continuation(parent, parent_stage_);
      waiting_ = true;
      if (queued_) p.post_self(child_);
    }
    T await_resume() {
      waiting_ = false;
      return child_.promise().take();
    }

   private:
    std::coroutine_handle<promise_type> child_;
    stage_record* parent_stage_;
    bool queued_ = false;
    bool waiting_ = false;
  };

  /// Called by the awaiting coroutine's promise.
  awaiter awaited_by(promise_base& parent) && {
    if (MILLRACE_UNLIKELY(!handle_)) detail::misused("an empty task was awaited: it was moved from, or never made");
    handle_.promise().bind(parent.context());
    return awaiter(handle_, parent.stage());
  }

 private:
  friend promise_type;
  template <class U>
  friend class spawned;
  template <class U>
  friend class detail::branch;

  explicit task(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}

  /// Gives up ownership of the coroutine. (std::exchange would be one more template for every type of result.)
  std::coroutine_handle<promise_type> release() noexcept {
    const std::coroutine_handle<promise_type> given = handle_;
    handle_ = nullptr;
    return given;
  }
  void reset() noexcept {
    if (handle_) release().destroy();
  }

  std::coroutine_handle<promise_type> handle_;
};

inline task<void> detail::task_promise<void>::get_return_object() noexcept { return task<void>(frame_of(*this)); }

}  // namespace millrace

template <class T, class... Parameters>
struct std::coroutine_traits<millrace::task<T>, Parameters...>
    : millrace::detail::coroutine_traits<millrace::task<T>, Parameters...> {};
