// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// An entry of a wait_list: lives in a coroutine's frame and unlinks itself when it is destroyed, so that dropping a
/// waiting coroutine needs no search.
class waiter {
 public:
  waiter() noexcept = default;
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;
  ~waiter() { unlink(); }

  bool linked() const noexcept { return next_ != nullptr; }
  void unlink() noexcept;

 private:
  template <class Waiter>
  friend class wait_list;
  waiter* prev_ = nullptr;
  waiter* next_ = nullptr;
};

/// A first-in first-out list of waiters, which it does not own: `Waiter` derives from waiter. Allocates nothing. One
/// thread. Waiters still in the list when it ends are unlinked.
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
  /// How many there are, by counting them.
  std::size_t count() const noexcept {
    std::size_t n = 0;
    for (const waiter* w = head_.next_; w != &head_; w = w->next_) ++n;
    return n;
  }
  /// The list must not be empty.
  Waiter& front() const noexcept { return static_cast<Waiter&>(*head_.next_); }
  /// Appends `w`, which must not be in a list.
  void push(Waiter& w) noexcept {
    waiter& node = w;
    node.prev_ = head_.prev_;
    node.next_ = &head_;
    head_.prev_->next_ = &node;
    head_.prev_ = &node;
  }
  /// Unlinks and returns the first one, or the one after the first `skip`; there must be one.
  Waiter& pop(std::size_t skip = 0) noexcept {
    waiter* node = head_.next_;
    for (; skip > 0; --skip) node = node->next_;
    node->unlink();
    return static_cast<Waiter&>(*node);
  }

 private:
  waiter head_;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline void waiter::unlink() noexcept {
  if (next_ == nullptr) return;
  prev_->next_ = next_;
  next_->prev_ = prev_;
  prev_ = next_ = nullptr;
}

}  // namespace millrace
