// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/io/detail/cpu_limits.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void pool_job::run() noexcept {
  executor_->operation_finished();
  done_ = true;
  if (waiter_ != nullptr) {
    executor_->post(*waiter_);
  } else {
    const std::shared_ptr<wait_group> abandoned = std::move(abandoned_);
    delete this;  // the function too: only then is nothing left
    abandoned->done();
  }
}

MILLRACE_INLINE bool pool_state::submit(pool_job& job) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return false;
    const std::int64_t all = jobs_.fetch_add(1, std::memory_order_relaxed);
    if (job.record_ != nullptr) {
      job.crowded_ = all - job.record_->jobs_in_pool.load(std::memory_order_relaxed) >= workers_;
      stage_record::add(job.record_->jobs_in_pool, 1);
    }
    job.prev_ = head_.prev_;
    job.next_ = &head_;
    head_.prev_->next_ = &job;
    head_.prev_ = &job;
  }
  changed_.notify_one();
  return true;
}

MILLRACE_INLINE bool pool_state::withdraw(pool_job& job) noexcept {
  std::lock_guard lock(mutex_);
  if (job.next_ == nullptr) return false;
  unlink(job);
  jobs_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

MILLRACE_INLINE void pool_state::stop() noexcept {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

/// The kernel's counts for the calling thread.
struct thread_usage {
  std::int64_t cpu_ns = 0;
  long waits = 0;        // it gave its core away, to wait for something
  long preemptions = 0;  // its core was taken from it

  static thread_usage now() noexcept {
    ::rusage of = {};
    ::getrusage(RUSAGE_THREAD, &of);
    const auto ns = [](const ::timeval& t) { return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_usec * 1000; };
    return {ns(of.ru_utime) + ns(of.ru_stime), of.ru_nvcsw, of.ru_nivcsw};
  }
  /// The part of `ns`, the time since `then`, in which the thread waited. A thread that is preempted does not wait, so
  /// one that was preempted more often than it waited counts as computing.
  std::int64_t slept_since(const thread_usage& then, std::int64_t ns) const noexcept {
    const long waited = waits - then.waits;
    if (waited == 0 || waited < preemptions - then.preemptions) return 0;
    return std::max<std::int64_t>(0, ns - (cpu_ns - then.cpu_ns));
  }
};

MILLRACE_INLINE void pool_state::work() noexcept {
  std::unique_lock lock(mutex_);
  const std::uint32_t self = ++workers_;
  std::int64_t measured_at = 0;
  for (;;) {
    while (head_.next_ == &head_ && !stopping_) changed_.wait(lock);
    if (head_.next_ == &head_) return;
    pool_job& job = *head_.next_;
    unlink(job);
    lock.unlock();
    const profiler_ranges* const ranges = job.executor_->runtime().ranges();
    if (ranges != nullptr) ranges->push(job.stage_);
    const std::int64_t begun = monotonic_ns();
    // Asking the kernel costs half a microsecond: short jobs are measured now and then, long ones always.
    const bool measured = begun - measured_at >= 1'000'000;
    const thread_usage before = measured ? thread_usage::now() : thread_usage();
    job.execute();
    const std::int64_t ended = monotonic_ns();
    job.spent_ns_ = ended - begun;
    if (measured) {
      job.measured_ns_ = ended - begun;
      job.slept_ns_ = thread_usage::now().slept_since(before, ended - begun);
      measured_at = begun;
    }
    if (ranges != nullptr) ranges->pop();
    if (tracer* const trace = job.executor_->runtime().trace()) {
      trace->add({.begin = begun, .end = ended, .name = job.stage_, .lane = trace_lane::pool, .key = self});
    }
    jobs_.fetch_sub(1, std::memory_order_relaxed);
    job.executor_->post_remote(job);  // the job may be gone from here on
    lock.lock();
  }
}

MILLRACE_INLINE void pool_state::unlink(pool_job& job) noexcept {
  job.prev_->next_ = job.next_;
  job.next_->prev_ = job.prev_;
  job.prev_ = job.next_ = nullptr;
}

MILLRACE_INLINE bool pool_job::start(std::shared_ptr<pool_state> pool, executor& ex, ready_node& waiter) noexcept {
  pool_ = std::move(pool);
  executor_ = &ex;
  waiter_ = &waiter;
  ex.operation_started();
  if (pool_->submit(*this)) return true;
  ex.operation_finished();
  executor_ = nullptr;
  return false;
}

MILLRACE_INLINE void pool_job::charge() noexcept {
  if (record_ == nullptr) return;
  stage_record::add(record_->pool_ns, spent_ns_);
  record_->jobs.add(spent_ns_);
  stage_record::add(record_->measured_ns, measured_ns_);
  stage_record::add(record_->slept_ns, slept_ns_);
  if (crowded_) stage_record::add(record_->crowded_jobs, 1);
  leave_stage();
}

MILLRACE_INLINE void pool_job::abandon(const std::shared_ptr<wait_group>& abandoned) noexcept {
  if (executor_ != nullptr && !pool_->process.here()) return;
  if (executor_ != nullptr) leave_stage();
  if (executor_ != nullptr && !done_) {
    if (!pool_->withdraw(*this)) {
      waiter_ = nullptr;
      abandoned_ = abandoned;
      abandoned_->add();
      return;
    }
    executor_->operation_finished();
  }
  delete this;
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE cpu_pool::cpu_pool(unsigned threads) {
  if (threads == 0) threads = cores_;
  threads_.reserve(threads);
  try {
    while (threads_.size() < threads) {
      threads_.emplace_back("millrace-pool", [state = state_.get()] { state->work(); });
    }
  } catch (...) {
    join();
    throw;
  }
}

MILLRACE_INLINE void cpu_pool::join() noexcept {
  if (!state_->process.here()) {
    for (detail::thread& t : threads_) t.forget();
    std::shared_ptr<detail::pool_state> waited_for = state_;  // its end would wait for the threads
    return detail::leak(waited_for);
  }
  state_->stop();
  for (detail::thread& t : threads_) t.join();
}

MILLRACE_INLINE int cpu_pool::keep_on(const cpu_set_t& cpus) noexcept {
  int failed = 0;
  for (detail::thread& t : threads_) {
    if (const int code = t.keep_on(cpus); code != 0) failed = code;
  }
  return failed;
}

MILLRACE_INLINE unsigned cpu_pool::usable_cores() {
  return detail::share_of_cpus(detail::limits_of_process(), 1);
}

namespace detail {
MILLRACE_INLINE void tell_pool(const coroutine_context& here, const cpu_pool::share& pool, bool given,
                               std::size_t limit, const char* more) noexcept {
  stage_record* const stage = here.stage();
  if (stage == nullptr || !pool) return;
  stage->pool_threads = static_cast<std::int64_t>(pool.threads());
  stage->pool_cores = given ? pool.cores() : here.runtime().cores();
  stage->pool_given = given;
  stage->pool_limit = static_cast<std::int64_t>(limit);
  stage->more_jobs = more != nullptr ? more : stage->advice;
}
}  // namespace detail

}  // namespace millrace
