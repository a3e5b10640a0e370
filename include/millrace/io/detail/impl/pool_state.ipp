// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include <millrace/base/compiler.hpp>
#include <millrace/io/detail/pool_state.hpp>

namespace millrace::detail {

MILLRACE_INLINE void pool_job::run() noexcept {
  executor_->operation_finished();
  done_ = true;
  if (waiter_ != nullptr) {
    executor_->post(*waiter_);
  } else {
    const std::shared_ptr<orphan_count> orphans = std::move(orphans_);
    delete this;  // the function too: only then is nothing left
    orphans->remove();
  }
}

MILLRACE_INLINE bool pool_state::submit(pool_job& job) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return false;
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
  return true;
}

MILLRACE_INLINE void pool_state::stop() noexcept {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

MILLRACE_INLINE void pool_state::work() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (head_.next_ == &head_ && !stopping_) changed_.wait(lock);
    if (head_.next_ == &head_) return;
    pool_job& job = *head_.next_;
    unlink(job);
    lock.unlock();
    const std::int64_t begun = monotonic_ns();
    job.execute();
    job.spent_ns_ = monotonic_ns() - begun;
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

MILLRACE_INLINE void pool_job::abandon(const std::shared_ptr<orphan_count>& orphans) noexcept {
  if (executor_ != nullptr && !done_) {
    if (!pool_->withdraw(*this)) {
      waiter_ = nullptr;
      orphans_ = orphans;
      orphans_->add();
      return;
    }
    executor_->operation_finished();
  }
  delete this;
}

}  // namespace millrace::detail
