// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <memory>
#include <mutex>

#include <millrace/base/compiler.hpp>
#include <millrace/sync/remote_waiters.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void remote_waiters::ticket::run() noexcept {
  on_way = false;
  if (waiter != nullptr) {
    home.post(*waiter);
  } else {
    delete this;
  }
}

MILLRACE_INLINE void remote_waiters::add(ticket& t) noexcept {
  t.prev = nullptr;
  t.next = first_;
  if (first_ != nullptr) first_->prev = &t;
  first_ = &t;
  t.listed = true;
}

MILLRACE_INLINE void remote_waiters::remove(ticket& t) noexcept {
  (t.prev != nullptr ? t.prev->next : first_) = t.next;
  if (t.next != nullptr) t.next->prev = t.prev;
  t.listed = false;
}

MILLRACE_INLINE remote_waiters::awaitable::awaiter::~awaiter() {
  if (ticket_ == nullptr) return;
  {
    std::lock_guard lock(mutex_);
    if (ticket_->listed) list_.remove(*ticket_);
  }
  if (!ticket_->on_way) {
    delete ticket_;
  } else {
    ticket_->waiter = nullptr;
  }
}

MILLRACE_INLINE bool remote_waiters::awaitable::awaiter::await_suspend(std::coroutine_handle<> handle) {
  ticket* const made = new ticket(home());
  suspend(handle);
  made->waiter = &node();
  std::lock_guard lock(mutex_);
  if (counter_ > seen_) {
    delete made;
    return false;
  }
  ticket_ = made;
  list_.add(*ticket_);
  return true;
}

MILLRACE_INLINE void remote_waiters::wake_all() noexcept {
  while (first_ != nullptr) {
    ticket& t = *first_;
    remove(t);
    t.on_way = true;
    t.home.post_remote(t);  // its waiter is there: dropping it would have needed the mutex
  }
}

}  // namespace millrace
