// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstdint>
#include <mutex>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Coroutines of any number of executors that wait until a counter has gone up: the owner's counter, under the owner's
/// mutex.
///
/// Each waiter leaves a ticket on the heap. Going up posts the tickets to their executors; a waiter that is dropped
/// removes its ticket, or, if that was posted, leaves it to delete itself when it arrives. No executor counts a waiter
/// as an operation: it may be destroyed as soon as its waiters are.
class remote_waiters {
  class ticket;

 public:
  remote_waiters() noexcept = default;
  remote_waiters(const remote_waiters&) = delete;
  remote_waiters& operator=(const remote_waiters&) = delete;

  /// `counter` must be above `seen` at some time; mutex, counter and this object must outlive the await.
  class awaitable;
  awaitable until_above(std::uint64_t seen, const std::uint64_t& counter, std::mutex& mutex) noexcept;

  /// Wakes every waiter. With the mutex held, after the counter has gone up.
  void wake_all() noexcept;

 private:
  class ticket final : public remote_node {
   public:
    explicit ticket(executor& e) noexcept : home(e) {}

    executor& home;
    ready_node* waiter = nullptr;  // the executor's thread
    bool on_way = false;
    ticket* next = nullptr;  // under the mutex
    ticket* prev = nullptr;
    bool listed = false;

   private:
    friend class remote_waiters;
    MILLRACE_INLINE void run() noexcept override;
  };

  void add(ticket& t) noexcept;
  void remove(ticket& t) noexcept;

  ticket* first_ = nullptr;
};

class remote_waiters::awaitable {
 public:
  awaitable(remote_waiters& list, std::uint64_t seen, const std::uint64_t& counter, std::mutex& mutex) noexcept
      : list_(list), seen_(seen), counter_(counter), mutex_(mutex) {}

  class awaiter : private detail::waiting_awaiter {
   public:
    awaiter(const awaitable& a, promise_base& promise) noexcept
        : waiting_awaiter(promise), list_(a.list_), seen_(a.seen_), counter_(a.counter_), mutex_(a.mutex_) {}
    ~awaiter();
    bool await_ready() noexcept {
      std::lock_guard lock(mutex_);
      return counter_ > seen_;
    }
    bool await_suspend(std::coroutine_handle<> handle);
    void await_resume() const noexcept {}

   private:
    remote_waiters& list_;
    const std::uint64_t seen_;
    const std::uint64_t& counter_;
    std::mutex& mutex_;
    ticket* ticket_ = nullptr;
  };
  awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(*this, promise); }

 private:
  remote_waiters& list_;
  std::uint64_t seen_;
  const std::uint64_t& counter_;
  std::mutex& mutex_;
};

inline remote_waiters::awaitable remote_waiters::until_above(std::uint64_t seen, const std::uint64_t& counter,
                                                             std::mutex& mutex) noexcept {
  return awaitable(*this, seen, counter, mutex);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/sync/remote_waiters.ipp>
#endif
