// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/detail/orphan_count.hpp>
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
  /// it comes home, and counts in `orphans` until then; one that is done is deleted now.
  void abandon(const std::shared_ptr<orphan_count>& orphans) noexcept;
  /// Nanoseconds on the pool's thread. For a job that is done.
  std::int64_t spent_ns() const noexcept { return spent_ns_; }

 protected:
  /// The work, on a thread of the pool. Keeps result or exception.
  virtual void execute() noexcept = 0;

 private:
  friend class pool_state;

  MILLRACE_INLINE void run() noexcept override;

  std::shared_ptr<orphan_count> orphans_;  // of one that nobody waits for
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
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/detail/impl/pool_state.ipp>
#endif
