// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/sync/semaphore.hpp>

namespace millrace {

MILLRACE_INLINE semaphore::permit& semaphore::permit::operator=(permit&& other) noexcept {
  if (this != &other) {
    release();
    semaphore_ = std::exchange(other.semaphore_, nullptr);
    amount_ = std::exchange(other.amount_, 0);
  }
  return *this;
}

MILLRACE_INLINE void semaphore::permit::shrink_to(std::uint64_t amount) noexcept {
  if (amount >= amount_) return;
  const std::uint64_t surplus = amount_ - amount;
  amount_ = amount;
  semaphore_->give_back(surplus);
}

MILLRACE_INLINE semaphore::permit semaphore::try_acquire(std::uint64_t amount) noexcept {
  if (!waiters_.empty() || !fits(amount)) return permit();
  used_ += amount;
  return permit(*this, amount);
}

MILLRACE_INLINE void semaphore::serve() noexcept {
  while (!waiters_.empty() && fits(waiters_.front().amount_)) {
    awaiter& a = waiters_.pop();
    used_ += a.amount_;
    a.granted_ = true;
    a.wake();
  }
}

}  // namespace millrace
