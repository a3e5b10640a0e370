// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <sched.h>

#include <millrace/base/detail/refused.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/io/detail/pool_state.hpp>
#include <millrace/loop/detail/thread.hpp>

namespace millrace {

/// A fixed set of threads for work that computes: decoding, decompression, augmentation. Any number of executors and
/// stages share one.
///
///     image i = co_await cores.run(decode_this);      // on a pool thread; the result comes back to this executor
///
/// Jobs start in the order in which they were awaited. Destroying the pool finishes every job that was begun or queued
/// and joins the threads: it must not happen on one of them. A stage that was given the pool and goes on after that
/// throws usage_error. Nothing is thread-local.
class cpu_pool {
 public:
  /// `threads` 0: as many as the cores that this process may run on (sched_getaffinity(2); a CPU quota of a container
  /// does not show there). Throws std::system_error when a thread cannot be started.
  explicit cpu_pool(unsigned threads = 0);
  cpu_pool(const cpu_pool&) = delete;
  cpu_pool& operator=(const cpu_pool&) = delete;
  ~cpu_pool() { join(); }

  unsigned threads() const noexcept { return static_cast<unsigned>(threads_.size()); }

  /// Cores that this process may run on.
  static unsigned usable_cores() noexcept;

  template <class Function>
  class awaitable;

  /// Awaitable that calls `f()` on a thread of the pool and gives its result or throws its exception.
  ///
  /// `f` is moved to the heap at once. It and its result are destroyed on the awaiting executor's thread, where
  /// they came from. Dropping the await takes a job back that has not begun, and it is never called; one that has begun
  /// runs to its end with nobody waiting, and executor::drain() waits for it. The time in `f` is added to the awaiting
  /// coroutine's stage_record::pool_ns. Where g++ 12 is to be supported, name a lambda with captures that are not
  /// trivial and move it in: `co_await run([s] {...})` destroys the closure twice there.
  template <class Function>
  awaitable<Function> run(Function f) {
    return awaitable<Function>(state_, std::move(f));
  }

  class share;

 private:
  template <class Function>
  class job;
  template <class Function>
  class awaiter;

  void join() noexcept {
    state_->stop();
    for (detail::thread& t : threads_) t.join();
  }

  const std::shared_ptr<detail::pool_state> state_ = std::make_shared<detail::pool_state>();
  std::vector<detail::thread> threads_;
};

/// A pool in the options of a stage, or none: `.on = cores`, `.on = &cores`. It must outlive what it is given to.
class pool_ref {
 public:
  constexpr pool_ref(cpu_pool* pool = nullptr) noexcept : pool_(pool) {}
  constexpr pool_ref(cpu_pool& pool) noexcept : pool_(&pool) {}
  template <class T = void>
  pool_ref(cpu_pool&&) noexcept : pool_(nullptr) {
    static_assert(detail::never_v<T>,
                  "a temporary pool ends before the pipeline that works on it: give the pool a name");
  }

  constexpr operator cpu_pool*() const noexcept { return pool_; }
  constexpr cpu_pool* operator->() const noexcept { return pool_; }

 private:
  cpu_pool* pool_;
};

/// What a stage keeps of the pool that it was given: may outlive the pool. Work for a pool that has ended throws
/// usage_error where it is awaited.
class cpu_pool::share {
 public:
  share() noexcept = default;
  explicit share(cpu_pool& pool) noexcept : state_(pool.state_) {}
  explicit operator bool() const noexcept { return state_ != nullptr; }
  template <class Function>
  awaitable<Function> run(Function f) const {
    return awaitable<Function>(state_, std::move(f));
  }

 private:
  std::shared_ptr<detail::pool_state> state_;
};

template <class Function>
class cpu_pool::job final : public detail::pool_job {
 public:
  using result_type = std::invoke_result_t<Function&>;
  static_assert(!std::is_reference_v<result_type>, "a function on a pool returns by value");

  explicit job(Function&& f) : function_(std::move(f)) {}

  result_type take() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if constexpr (!std::is_void_v<result_type>) return std::move(*result_);
  }

 private:
  void execute() noexcept override {
    try {
      if constexpr (std::is_void_v<result_type>) {
        function_();
      } else {
        result_.emplace(function_());
      }
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  Function function_;
  std::optional<std::conditional_t<std::is_void_v<result_type>, char, result_type>> result_;
  std::exception_ptr error_;
};

template <class Function>
class cpu_pool::awaiter {
 public:
  awaiter(std::shared_ptr<detail::pool_state> pool, std::unique_ptr<job<Function>> j, promise_base& promise) noexcept
      : pool_(std::move(pool)), job_(j.release()), promise_(promise) {}
  awaiter(const awaiter&) = delete;
  awaiter& operator=(const awaiter&) = delete;
  ~awaiter() { job_->abandon(promise_.orphans()); }

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> handle) {
    node_.set(handle, promise_.stage());
    if (!job_->start(std::move(pool_), promise_.get_executor(), node_)) {
      detail::misused("the cpu_pool that a stage works on has ended: it must outlive the pipeline");
    }
  }
  typename job<Function>::result_type await_resume() {
    if (promise_.stage() != nullptr) stage_record::add(promise_.stage()->pool_ns, job_->spent_ns());
    return job_->take();
  }

 private:
  std::shared_ptr<detail::pool_state> pool_;
  job<Function>* job_;
  promise_base& promise_;
  ready_node node_;
};

/// See cpu_pool::run(). Awaited at most once; dropping it unawaited drops the function uncalled.
template <class Function>
class [[nodiscard("a job does nothing until it is awaited")]] cpu_pool::awaitable {
 public:
  awaitable(std::shared_ptr<detail::pool_state> pool, Function && f)
      : pool_(std::move(pool)), job_(std::make_unique<job<Function>>(std::move(f))) {}

  awaiter<Function> awaited_by(promise_base & promise)&& {
    if (job_ == nullptr) detail::misused("a job of a cpu_pool was awaited twice");
    return awaiter<Function>(std::move(pool_), std::move(job_), promise);
  }

 private:
  std::shared_ptr<detail::pool_state> pool_;
  std::unique_ptr<job<Function>> job_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/impl/cpu_pool.ipp>
#endif
