// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/own_process.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/stage_record.hpp>
#include <millrace/loop/detail/thread.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

class pool_state;

/// One job of a cpu_pool: on the heap, because it may still run when its waiter is gone. Everything but execute()
/// happens on the executor's thread, its destruction too.
class pool_job : public remote_node {
 public:
  ~pool_job() override = default;

  /// Sends the job to the pool; `waiter` is queued when it is done. False, and nothing has happened, when the pool has
  /// ended.
  bool start(std::shared_ptr<pool_state> pool, executor& ex, ready_node& waiter) noexcept;
  /// For an owner that is destroyed: a job that waits in the pool is removed and deleted, one that runs is deleted when
  /// its message arrives, and counts in `abandoned` until then; one that is done is deleted now.
  void abandon(const std::shared_ptr<wait_group>& abandoned) noexcept;
  /// The stage that it is for, or null. Before start().
  void of_stage(stage_record* stage) noexcept {
    record_ = stage;
    if (stage != nullptr) stage_ = stage->name;
  }
  /// Does the work now, without a pool.
  void run_here() noexcept { execute(); }
  /// Adds the time and the usage of the job to the record of its stage. For a job that is done.
  void charge() noexcept;

 protected:
  /// The work, on a thread of the pool. Keeps result or exception.
  virtual void execute() noexcept = 0;

 private:
  friend class pool_state;

  MILLRACE_INLINE void run() noexcept override;
  /// Its stage has one job fewer in the pool.
  void leave_stage() noexcept {
    if (record_ != nullptr) stage_record::add(record_->jobs_in_pool, -1);
    record_ = nullptr;
  }

  std::shared_ptr<wait_group> abandoned_;  // of one without a waiter
  std::shared_ptr<pool_state> pool_;  // outlives the cpu_pool while jobs may still look into its queue
  executor* executor_ = nullptr;
  ready_node* waiter_ = nullptr;
  bool done_ = false;
  bool crowded_ = false;  // it found all threads taken by jobs of other stages
  std::int64_t spent_ns_ = 0;
  std::int64_t measured_ns_ = 0;  // 0 if it was not measured
  std::int64_t slept_ns_ = 0;
  const char* stage_ = "";           // for a trace
  stage_record* record_ = nullptr;   // the executor's thread's, until it is charged or abandoned
  pool_job* prev_ = nullptr;  // under the pool's mutex; null when not queued
  pool_job* next_ = nullptr;
};

/// The queue between executors and the threads of one pool.
class pool_state {
 public:
  pool_state() noexcept { head_.prev_ = head_.next_ = &head_; }
  pool_state(const pool_state&) = delete;
  pool_state& operator=(const pool_state&) = delete;

  /// The process that the threads belong to.
  const own_process process;

  /// False if the pool has ended: it may have no thread any more.
  bool submit(pool_job& job) noexcept;

  /// Takes a job back that no thread has begun; false when it is too late.
  bool withdraw(pool_job& job) noexcept;

  /// From now on no job is taken, and threads leave when the queue is empty.
  void stop() noexcept;

  /// The body of a pool thread.
  void work() noexcept;

 private:
  class list_head final : public pool_job {
    void execute() noexcept override {}
  };

  static void unlink(pool_job& job) noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  list_head head_;
  bool stopping_ = false;
  std::uint32_t workers_ = 0;
  std::atomic<std::int64_t> jobs_{0};  // waiting for a thread or on one
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// A fixed set of threads for work that computes: decoding, decompression, augmentation. Any number of executors and
/// stages share one.
///
///     image i = co_await cores.run(decode_this);      // on a pool thread; the result comes back to this executor
///
/// Jobs start in the order in which they were awaited. Destroying the pool finishes every job that was begun or queued
/// and joins the threads: it must not happen on one of them. A stage that uses the pool after that throws usage_error;
/// so does one in a child of fork(), where there are no such threads. Nothing is thread-local.
class cpu_pool {
 public:
  /// `threads` 0: usable_cores(). Throws io_error when a thread cannot be started.
  explicit cpu_pool(unsigned threads = 0);
  cpu_pool(const cpu_pool&) = delete;
  cpu_pool& operator=(const cpu_pool&) = delete;
  ~cpu_pool() { join(); }

  unsigned threads() const noexcept { return static_cast<unsigned>(threads_.size()); }

  /// Keeps all threads on these CPUs. Returns an errno, 0 for success. One thread at a time.
  int keep_on(const cpu_set_t& cpus) noexcept;

  /// Cores that this process may use: the least of the calling thread's affinity mask (sched_getaffinity(2)), the
  /// cgroup's cpuset and the CPU quota of its cgroups (1.5 counts as 2). Reads some ten small files.
  static unsigned usable_cores();

  template <class Function>
  class awaitable;

  /// Awaitable that calls `f()` on a thread of the pool and gives its result or throws its exception.
  ///
  /// `f` is moved to the heap at once. It and its result are destroyed on the awaiting executor's thread, where they
  /// came from. Dropping the await takes a job back that has not begun, and it is never called; one that has begun runs
  /// to its end without a waiter, and executor::drain() waits for it. The time in `f` is added to the awaiting
  /// coroutine's stage_record::pool_ns. If g++ 12 is to be supported, name a lambda with captures that are not trivial
  /// and move it in: `co_await run([s] {...})` destroys the closure twice there.
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

  void join() noexcept;

  const std::shared_ptr<detail::pool_state> state_{new detail::pool_state};
  const unsigned cores_ = usable_cores();  // of the thread that makes the pool: its threads have that mask
  std::vector<detail::thread> threads_;
};

/// A pool in the options of a stage, or none: `.on = cores`, `.on = &cores`. It must outlive the stages that use it.
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

/// A stage's share in the pool that it was given: may outlive the pool. Work for a pool that has ended throws
/// usage_error where it is awaited. An empty share runs its jobs where they are awaited, at once.
class cpu_pool::share {
 public:
  share() noexcept = default;
  explicit share(cpu_pool& pool) noexcept : state_(pool.state_), threads_(pool.threads()), cores_(pool.cores_) {}
  /// The pool of the runtime, for a stage that was given none; empty on a loop that belongs to no runtime.
  static share of(runtime_parts& runtime) {
    cpu_pool* const pool = runtime.pool();
    return pool == nullptr ? share() : share(*pool);
  }
  explicit operator bool() const noexcept { return state_ != nullptr; }
  unsigned threads() const noexcept { return threads_; }
  /// How many of them could have a core.
  unsigned cores() const noexcept { return cores_; }
  template <class Function>
  awaitable<Function> run(Function f) const {
    return awaitable<Function>(state_, std::move(f));
  }

 private:
  std::shared_ptr<detail::pool_state> state_;
  unsigned threads_ = 0;
  unsigned cores_ = 0;
};

namespace detail {
/// For run_stats::verdict(): the stage's jobs run on that pool, which it was `given` or has from the runtime, `limit`
/// of them at once at most (0: any number). `more`: the option that lets there be more; null: the stage's advice.
void tell_pool(const coroutine_context& here, const cpu_pool::share& pool, bool given, std::size_t limit,
               const char* more = nullptr) noexcept;
}  // namespace detail

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
  ~awaiter() { job_->abandon(promise_.run().abandoned()); }

  bool await_ready() const noexcept {
    if (pool_ == nullptr) job_->run_here();
    return pool_ == nullptr;
  }
  void await_suspend(std::coroutine_handle<> handle) {
    node_.set(handle, promise_.stage());
    job_->of_stage(promise_.stage());
    if (!job_->start(std::move(pool_), promise_.get_executor(), node_)) {
      detail::misused("the cpu_pool that a stage works on has ended: it must outlive the pipeline");
    }
  }
  typename job<Function>::result_type await_resume() {
    job_->charge();
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
    if (pool_ != nullptr) pool_->process.check("a cpu_pool");
    return awaiter<Function>(std::move(pool_), std::move(job_), promise);
  }

 private:
  std::shared_ptr<detail::pool_state> pool_;
  std::unique_ptr<job<Function>> job_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/cpu_pool.ipp>
#endif
