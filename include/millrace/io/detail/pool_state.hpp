// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include <millrace/base/detail/condition.hpp>
#include <millrace/coro/detail/away_count.hpp>
#include <millrace/coro/executor.hpp>

namespace millrace::detail {

class pool_state;

/// One job of a cpu_pool: on the heap, because it may run on when nobody waits for it any more. Everything but
/// execute() happens on the executor's thread, the end of its life too.
class pool_job : public remote_node {
 public:
  ~pool_job() override = default;

  /// Sends the job to the pool; `waiter` is queued when it is done. False, and nothing has happened, when the pool has
  /// ended.
  bool start(std::shared_ptr<pool_state> pool, executor& ex, ready_node& waiter) noexcept;
  /// For an owner that goes away: a job that waits in the pool is taken back and deleted, one that runs is deleted when
  /// it comes home, and counts as `away` until then; one that is done is deleted now.
  void abandon(const std::shared_ptr<away_count>& away) noexcept;
  /// Nanoseconds on the pool's thread. For a job that is done.
  std::int64_t spent_ns() const noexcept { return spent_ns_; }

 protected:
  /// The work, on a thread of the pool. Keeps result or exception.
  virtual void execute() noexcept = 0;

 private:
  friend class pool_state;

  void run() noexcept override {
    executor_->operation_finished();
    done_ = true;
    if (waiter_ != nullptr) {
      executor_->post(*waiter_);
    } else {
      const std::shared_ptr<away_count> away = std::move(away_);
      delete this;  // the function too: only then is nothing left
      away->came_home();
    }
  }

  std::shared_ptr<away_count> away_;  // of one that nobody waits for
  std::shared_ptr<pool_state> pool_;  // outlives the cpu_pool while jobs may still look into its queue
  executor* executor_ = nullptr;
  ready_node* waiter_ = nullptr;
  bool done_ = false;
  std::int64_t spent_ns_ = 0;
  pool_job* prev_ = nullptr;  // under the pool's mutex; null when not queued
  pool_job* next_ = nullptr;
};

/// The queue between executors and the threads of one pool.
class pool_state {
 public:
  pool_state() noexcept { head_.prev_ = head_.next_ = &head_; }
  pool_state(const pool_state&) = delete;
  pool_state& operator=(const pool_state&) = delete;

  /// False when the pool has ended: there may be no thread any more.
  bool submit(pool_job& job) noexcept {
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

  /// Takes a job back that no thread has begun; false when it is too late.
  bool withdraw(pool_job& job) noexcept {
    std::lock_guard lock(mutex_);
    if (job.next_ == nullptr) return false;
    unlink(job);
    return true;
  }

  /// From now on no job is taken, and threads leave when the queue is empty.
  void stop() noexcept {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
  }

  /// The body of a pool thread.
  void work() noexcept {
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

 private:
  class list_head final : public pool_job {
    void execute() noexcept override {}
  };

  static void unlink(pool_job& job) noexcept {
    job.prev_->next_ = job.next_;
    job.next_->prev_ = job.prev_;
    job.prev_ = job.next_ = nullptr;
  }

  std::mutex mutex_;
  condition changed_;
  list_head head_;
  bool stopping_ = false;
};

inline bool pool_job::start(std::shared_ptr<pool_state> pool, executor& ex, ready_node& waiter) noexcept {
  pool_ = std::move(pool);
  executor_ = &ex;
  waiter_ = &waiter;
  ex.operation_started();
  if (pool_->submit(*this)) return true;
  ex.operation_finished();
  executor_ = nullptr;
  return false;
}

inline void pool_job::abandon(const std::shared_ptr<away_count>& away) noexcept {
  if (executor_ != nullptr && !done_) {
    if (!pool_->withdraw(*this)) {
      waiter_ = nullptr;
      away_ = away;
      away_->left();
      return;
    }
    executor_->operation_finished();
  }
  delete this;
}

}  // namespace millrace::detail
