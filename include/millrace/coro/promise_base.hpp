// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/coro/executor.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

template <class T>
inline constexpr bool by_rvalue_reference = false;
template <class T>
inline constexpr bool by_rvalue_reference<T&&> = true;
template <class T>
inline constexpr bool by_rvalue_reference<T&> = false;

/// The object of a member function is its first parameter, too. A function object whose operator() is for rvalues is a
/// stage, which the pipe keeps.
template <class Result, class First, class... Rest>
constexpr bool refers_to_temporaries() {
  if constexpr ((by_rvalue_reference<Rest> || ...)) return true;
  if constexpr (by_rvalue_reference<First>) return !std::is_invocable_r_v<Result, First, Rest...>;
  return false;
}
template <class Result>
constexpr bool refers_to_temporaries() {
  return false;
}

/// Base of our std::coroutine_traits, which see a coroutine's parameters as they are declared: refuses rvalue
/// references. Such a parameter binds to temporaries, and these are gone when the coroutine, which has not even begun
/// when its call returns, comes to use it.
template <class Result, class... Parameters>
struct coroutine_traits {
  static_assert(!refers_to_temporaries<Result, Parameters...>(),
                "a coroutine must not take a parameter by rvalue reference: what it refers to may be gone when the "
                "coroutine runs. Take it by value");
  using promise_type = typename Result::promise_type;
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// The context of a coroutine: its executor, the context of its run, and the metrics of its stage. Flows down at the
/// await: a coroutine that awaits another binds it to its own context before it runs. Nothing is thread-local.
///
///     const coroutine_context here = co_await this_context();
///     spawned<void> ahead(here, pull(source));   // works for the same run and stage
///
/// A value of three pointers. The executor and the run outlive all coroutines that are bound to them.
class coroutine_context {
 public:
  /// For coroutines that belong to no run. `metrics`: of the stage; null if none are kept.
  coroutine_context(executor& ex, stage_record* metrics = nullptr) noexcept  // NOLINT: an executor is enough to run on
      : coroutine_context(ex, ex.own_run(), metrics) {}
  coroutine_context(executor& ex, run_context& run, stage_record* metrics) noexcept
      : executor_(&ex), run_(&run), stage_(metrics) {}

  class executor& get_executor() const noexcept { return *executor_; }
  /// The state that the coroutines of the run share and decide by.
  run_context& run() const noexcept { return *run_; }
  /// The parts that the runtime shares between its runs.
  runtime_parts& runtime() const noexcept { return executor_->runtime(); }
  /// The metrics of the stage; null if none are kept. Only written: nothing is decided by them.
  stage_record* stage() const noexcept { return stage_; }

 private:
  class executor* executor_;
  run_context* run_;
  stage_record* stage_;
};

/// The base of all promises of the library: the coroutine's context, and its awaiter. Promises derive from this class.
class promise_base {
 public:
  promise_base() noexcept = default;  // also keeps the promise from being an aggregate initialised by parameters
  promise_base(const promise_base&) = delete;
  promise_base& operator=(const promise_base&) = delete;
  ~promise_base() {
    if (executor_ != nullptr) executor_->frame_destroyed();
  }

  /// Binds the coroutine to its context, once, before it runs; usage_error the second time.
  void bind(const coroutine_context& context) {
    if (MILLRACE_UNLIKELY(executor_ != nullptr)) detail::misused("a coroutine was started or awaited twice");
    executor_ = &context.get_executor();
    executor_->frame_bound();
    run_ = &context.run();
    stage_ = context.stage();
  }

  class executor& get_executor() const noexcept { return *executor_; }
  bool bound() const noexcept { return executor_ != nullptr; }
  stage_record* stage() const noexcept { return stage_; }
  run_context& run() const noexcept { return *run_; }
  coroutine_context context() const noexcept { return coroutine_context(*executor_, *run_, stage_); }

  /// The coroutine to resume when this one has something; null when none waits.
  void set_continuation(std::coroutine_handle<> handle, stage_record* stage) noexcept {
    continuation_ = handle;
    continuation_stage_ = stage;
  }
  bool awaited() const noexcept { return continuation_ != nullptr; }
  /// Resumes the continuation, if any, once this coroutine has suspended.
  void resume_continuation() noexcept {
    if (continuation_) executor_->transfer(std::exchange(continuation_, nullptr), continuation_stage_);
  }

  void unhandled_exception() noexcept {
    error_ = std::current_exception();
    if (stage_ != nullptr && stage_->owner != nullptr) stage_->owner->failed(error_, *stage_);
  }
  bool failed() const noexcept { return error_ != nullptr; }
  void rethrow_if_failed() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  /// The place of this coroutine itself in the run queue: for starting it there.
  void post_self(std::coroutine_handle<> self) noexcept {
    node_.set(self, stage_);
    executor_->post(node_);
  }

  /// An awaitable says with `awaited_by(promise)` which awaiter serves the coroutine of that promise: so every awaiter
  /// knows its executor and stage from its constructor on, and is built in place in the frame (g++ 12 copies an awaiter
  /// that await_transform returns by reference).
  template <class Awaitable>
  MILLRACE_ALWAYS_INLINE auto await_transform(Awaitable&& awaitable) {
    if constexpr (requires { static_cast<Awaitable&&>(awaitable).awaited_by(*this); }) {
      return static_cast<Awaitable&&>(awaitable).awaited_by(*this);
    } else {
      static_assert(
          std::is_void_v<Awaitable>,
          "a millrace coroutine awaits millrace awaitables only: tasks (moved: co_await std::move(t)), next(), and "
          "what has awaited_by(promise)");
      if constexpr (requires { std::move(awaitable).awaited_by(*this); }) {
        return std::move(awaitable).awaited_by(*this);  // awaited: no second error hides the sentence
      } else {
        return std::suspend_never();
      }
    }
  }

 private:
  class executor* executor_ = nullptr;
  stage_record* stage_ = nullptr;
  run_context* run_ = nullptr;
  std::coroutine_handle<> continuation_;
  stage_record* continuation_stage_ = nullptr;
  std::exception_ptr error_;
  ready_node node_;
};

namespace detail {

/// The handle of a promise's coroutine. Under a compiler that misplaces frames the address shows it: operator new
/// aligns frames, and a misplaced one starts eight bytes late.
template <class Promise>
std::coroutine_handle<Promise> frame_of(Promise& promise) noexcept {
  const auto handle = std::coroutine_handle<Promise>::from_promise(promise);
#if MILLRACE_AWAIT_IN_CONDITION_UNSAFE
  MILLRACE_ASSERT(reinterpret_cast<std::uintptr_t>(handle.address()) % __STDCPP_DEFAULT_NEW_ALIGNMENT__ == 0,
                  "g++ 12.2 misplaces the frame of a coroutine that awaits in a condition and declares no variable: "
                  "name the awaited value, `const bool more = co_await ...; if (more)`");
#endif
  return handle;
}

}  // namespace detail

/// `executor& ex = co_await this_executor();` never suspends.
class this_executor {
 public:
  this_executor() noexcept = default;
  /// Converts to the executor. No plain reference: nvcc, in a template, takes an awaited reference for a temporary.
  class reference {
   public:
    explicit reference(executor& ex) noexcept : executor_(ex) {}
    operator executor&() const noexcept { return executor_; }

   private:
    executor& executor_;
  };
  class awaiter {
   public:
    explicit awaiter(executor& ex) noexcept : executor_(ex) {}
    bool await_ready() const noexcept { return true; }
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    reference await_resume() const noexcept { return reference(executor_); }

   private:
    executor& executor_;
  };
  awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(promise.get_executor()); }
};

/// `const coroutine_context here = co_await this_context();` never suspends.
class this_context {
 public:
  this_context() noexcept = default;
  class awaiter {
   public:
    explicit awaiter(const coroutine_context& context) noexcept : context_(context) {}
    bool await_ready() const noexcept { return true; }
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    coroutine_context await_resume() const noexcept { return context_; }

   private:
    const coroutine_context context_;
  };
  awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(promise.context()); }
};

namespace detail {

/// The common part of the leaves' awaiters: the waiting coroutine, and its node in the executor's run queue, which
/// unlinks itself. A leaf derives from it; its destructor only takes back its own requests.
class waiting_awaiter {
 public:
  waiting_awaiter(const waiting_awaiter&) = delete;
  waiting_awaiter& operator=(const waiting_awaiter&) = delete;

 protected:
  explicit waiting_awaiter(promise_base& promise) noexcept : promise_(promise) {}
  ~waiting_awaiter() = default;

  executor& home() const noexcept { return promise_.get_executor(); }
  stage_record* stage() const noexcept { return promise_.stage(); }
  run_context& run() const noexcept { return promise_.run(); }
  coroutine_context context() const noexcept { return promise_.context(); }
  /// How await_suspend() begins.
  void suspend(std::coroutine_handle<> handle) noexcept { node_.set(handle, promise_.stage()); }
  /// Queues the suspended coroutine; while it is queued, nothing.
  void wake() noexcept { home().post(node_); }
  /// For those who queue it themselves.
  ready_node& node() noexcept { return node_; }

 private:
  promise_base& promise_;
  ready_node node_;
};

/// An await of `object` that has not begun: returned by wait() and the like.
template <class Awaiter, class Object>
class awaitable_of {
 public:
  explicit awaitable_of(Object& object) noexcept : object_(&object) {}
  Awaiter awaited_by(promise_base& promise) const noexcept { return Awaiter(*object_, promise); }

 private:
  Object* object_;
};

}  // namespace detail

/// Goes through the run queue once: `co_await yield_now();` lets timers, I/O and other coroutines run.
/// Dropping it while queued unlinks it.
class yield_now {
 public:
  yield_now() noexcept = default;
  class awaiter : private detail::waiting_awaiter {
   public:
    explicit awaiter(promise_base& promise) noexcept : waiting_awaiter(promise) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      suspend(handle);
      wake();
    }
    void await_resume() const noexcept {}
  };
  awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(promise); }
};

}  // namespace millrace
