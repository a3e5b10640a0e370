// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace millrace {

/// A first-in first-out list of waiters that live in coroutine frames; a waiter unlinks itself when it is dropped.
class waiter {
 public:
  waiter() noexcept = default;
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;
  ~waiter() { unlink(); }

  bool linked() const noexcept { return next_ != nullptr; }
  void unlink() noexcept {
    if (next_ == nullptr) return;
    prev_->next_ = next_;
    next_->prev_ = prev_;
    prev_ = next_ = nullptr;
  }

 private:
  template <class Waiter>
  friend class wait_list;
  waiter* prev_ = nullptr;
  waiter* next_ = nullptr;
};

/// See waiter. `Waiter` derives from waiter.
template <class Waiter>
class wait_list {
 public:
  wait_list() noexcept { head_.prev_ = head_.next_ = &head_; }
  wait_list(const wait_list&) = delete;
  wait_list& operator=(const wait_list&) = delete;
  ~wait_list() {
    while (!empty()) head_.next_->unlink();
    head_.prev_ = head_.next_ = nullptr;
  }

  bool empty() const noexcept { return head_.next_ == &head_; }
  Waiter& front() const noexcept { return static_cast<Waiter&>(*head_.next_); }
  void push(Waiter& w) noexcept {
    waiter& node = w;
    node.prev_ = head_.prev_;
    node.next_ = &head_;
    head_.prev_->next_ = &node;
    head_.prev_ = &node;
  }
  Waiter& pop() noexcept {
    waiter* const node = head_.next_;
    node->unlink();
    return static_cast<Waiter&>(*node);
  }

 private:
  waiter head_;
};

}  // namespace millrace
