// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <millrace/loop/event_loop.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A first-in first-out list of file operations, and the loops' access to them.
class file_queue {
 public:
  using place = file_operation::place;

  file_queue() = default;
  file_queue(const file_queue&) = delete;
  file_queue& operator=(const file_queue&) = delete;

  bool empty() const noexcept { return head_ == nullptr; }
  std::size_t size() const noexcept { return size_; }

  void push(file_operation& op, place where) noexcept {
    op.place_ = where;
    op.prev_ = tail_;
    op.next_ = nullptr;
    (tail_ == nullptr ? head_ : tail_->next_) = &op;
    tail_ = &op;
    ++size_;
  }
  const file_operation& front() const noexcept { return *head_; }
  file_operation& pop() noexcept {
    file_operation& op = *head_;
    remove(op);
    return op;
  }
  void remove(file_operation& op) noexcept {
    (op.prev_ == nullptr ? head_ : op.prev_->next_) = op.next_;
    (op.next_ == nullptr ? tail_ : op.next_->prev_) = op.prev_;
    op.prev_ = op.next_ = nullptr;
    op.place_ = place::outside;
    --size_;
  }
  void swap(file_queue& other) noexcept {
    std::swap(head_, other.head_);
    std::swap(tail_, other.tail_);
    std::swap(size_, other.size_);
  }

  static place place_of(const file_operation& op) noexcept { return op.place_; }
  static void set_result(file_operation& op, std::int64_t result) noexcept { op.result_ = result; }
  static std::int64_t result(const file_operation& op) noexcept { return op.result_; }
  static bool cancelled(const file_operation& op) noexcept { return op.cancelled_; }
  static void set_cancelled(file_operation& op) noexcept { op.cancelled_ = true; }
  static void complete(file_operation& op, std::int64_t result) noexcept { op.complete(result); }

 private:
  file_operation* head_ = nullptr;
  file_operation* tail_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace millrace::detail
