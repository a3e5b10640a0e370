// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>
#include <cstdint>
#include <utility>

#include <millrace/base/wait_list.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Counts permits of any unit (items, bytes, connections) for coroutines of one executor.
///
/// `semaphore::permit p = co_await s.acquire(n);` waits until `n` permits are free and all earlier requests have been
/// served: first in, first out, so that small requests do not starve a large one. Dropping the permit returns them. A
/// request for more than the capacity is granted when no other permit exists: one oversized item passes alone instead
/// of deadlocking. Permits granted to a waiter that is dropped before it runs are returned. The semaphore must outlive
/// its waiters and permits.
class semaphore {
 public:
  explicit semaphore(std::uint64_t capacity) noexcept : capacity_(capacity) {}
  semaphore(const semaphore&) = delete;
  semaphore& operator=(const semaphore&) = delete;

  /// The right to `amount()` units, returned on destruction.
  class permit {
   public:
    permit() noexcept = default;
    permit(semaphore& s, std::uint64_t amount) noexcept : semaphore_(&s), amount_(amount) {}
    permit(permit&& other) noexcept
        : semaphore_(std::exchange(other.semaphore_, nullptr)), amount_(std::exchange(other.amount_, 0)) {}
    permit& operator=(permit&& other) noexcept;
    ~permit() { release(); }

    explicit operator bool() const noexcept { return semaphore_ != nullptr; }
    std::uint64_t amount() const noexcept { return amount_; }
    void release() noexcept {
      if (semaphore_ != nullptr) std::exchange(semaphore_, nullptr)->give_back(std::exchange(amount_, 0));
    }
    /// Returns all but `amount`: for when an upper bound was acquired and less turned out to be needed.
    void shrink_to(std::uint64_t amount) noexcept;

   private:
    semaphore* semaphore_ = nullptr;
    std::uint64_t amount_ = 0;
  };

  class awaiter : public waiter, private detail::waiting_awaiter {
   public:
    awaiter(semaphore& s, std::uint64_t amount, promise_base& promise) noexcept
        : waiting_awaiter(promise), semaphore_(s), amount_(amount) {}
    ~awaiter() {
      if (granted_) {
        semaphore_.give_back(amount_);
      } else if (linked()) {
        unlink();
        semaphore_.serve();  // a smaller request after this one may fit now
      }
    }
    bool await_ready() noexcept {
      if (!semaphore_.waiters_.empty() || !semaphore_.fits(amount_)) return false;
      semaphore_.used_ += amount_;
      granted_ = true;
      return true;
    }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      suspend(handle);
      semaphore_.waiters_.push(*this);
    }
    permit await_resume() noexcept {
      granted_ = false;
      return permit(semaphore_, amount_);
    }

   private:
    friend class semaphore;
    semaphore& semaphore_;
    std::uint64_t amount_;
    bool granted_ = false;
  };
  class awaitable {
   public:
    awaitable(semaphore& s, std::uint64_t amount) noexcept : semaphore_(&s), amount_(amount) {}
    awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(*semaphore_, amount_, promise); }

   private:
    semaphore* semaphore_;
    std::uint64_t amount_;
  };

  awaitable acquire(std::uint64_t amount = 1) noexcept { return awaitable(*this, amount); }

  /// A permit if there is one without waiting (an empty one otherwise).
  permit try_acquire(std::uint64_t amount = 1) noexcept;

  std::uint64_t capacity() const noexcept { return capacity_; }
  std::uint64_t used() const noexcept { return used_; }
  bool contended() const noexcept { return !waiters_.empty(); }

 private:
  bool fits(std::uint64_t amount) const noexcept {
    return used_ == 0 || (used_ <= capacity_ && amount <= capacity_ - used_);
  }
  void give_back(std::uint64_t amount) noexcept {
    used_ -= amount;
    if (!waiters_.empty()) serve();
  }
  void serve() noexcept;

  const std::uint64_t capacity_;
  std::uint64_t used_ = 0;
  wait_list<awaiter> waiters_;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline semaphore::permit& semaphore::permit::operator=(permit&& other) noexcept {
  if (this != &other) {
    release();
    semaphore_ = std::exchange(other.semaphore_, nullptr);
    amount_ = std::exchange(other.amount_, 0);
  }
  return *this;
}

inline void semaphore::permit::shrink_to(std::uint64_t amount) noexcept {
  if (amount >= amount_) return;
  const std::uint64_t surplus = amount_ - amount;
  amount_ = amount;
  semaphore_->give_back(surplus);
}

inline semaphore::permit semaphore::try_acquire(std::uint64_t amount) noexcept {
  if (!waiters_.empty() || !fits(amount)) return permit();
  used_ += amount;
  return permit(*this, amount);
}

inline void semaphore::serve() noexcept {
  while (!waiters_.empty() && fits(waiters_.front().amount_)) {
    awaiter& a = waiters_.pop();
    used_ += a.amount_;
    a.granted_ = true;
    a.wake();
  }
}

}  // namespace millrace
