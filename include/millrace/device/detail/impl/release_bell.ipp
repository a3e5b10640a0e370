// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <memory>
#include <mutex>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/device/detail/release_bell.hpp>

namespace millrace::detail {

MILLRACE_INLINE void release_bell::awaiter::await_suspend(std::coroutine_handle<> handle) {
  suspend(handle);
  if (pause_) home().add_timer(*this, home().now() + *pause_);
  if (bell_.enter(*this, home())) wake();
}

MILLRACE_INLINE void release_bell::ring(std::shared_ptr<void> owner) noexcept {
  const std::lock_guard lock(mutex_);
  rang_ = true;
  if (waiter_ == nullptr || posted_) return;
  posted_ = true;
  owner_ = std::move(owner);
  executor_->post_remote(*this);  // alive: the waiter belongs to it, and leaves under the lock
}

MILLRACE_INLINE void release_bell::ring_here() noexcept {
  const std::lock_guard lock(mutex_);
  rang_ = true;
  if (waiter_ != nullptr) waiter_->wake();
}

MILLRACE_INLINE bool release_bell::enter(awaiter& a, executor& ex) noexcept {
  const std::lock_guard lock(mutex_);
  waiter_ = &a;
  executor_ = &ex;
  return rang_;
}

MILLRACE_INLINE void release_bell::leave() noexcept {
  const std::lock_guard lock(mutex_);
  if (waiter_ == nullptr) return;
  waiter_ = nullptr;
  if (posted_ && !announced_) {
    announced_ = true;
    executor_->operation_started();
  }
}

MILLRACE_INLINE void release_bell::run() noexcept {
  std::shared_ptr<void> owner;  // let go after the lock: it may be the last
  const std::lock_guard lock(mutex_);
  posted_ = false;
  owner = std::move(owner_);
  if (waiter_ != nullptr) waiter_->wake();
  if (std::exchange(announced_, false)) executor_->operation_finished();
}

}  // namespace millrace::detail
