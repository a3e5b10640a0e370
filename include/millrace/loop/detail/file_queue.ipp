// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/compiler.hpp>
#include <millrace/loop/detail/file_queue.hpp>

namespace millrace::detail {

MILLRACE_INLINE void file_queue::push(file_operation& op, place where) noexcept {
  op.place_ = where;
  op.prev_ = tail_;
  op.next_ = nullptr;
  (tail_ == nullptr ? head_ : tail_->next_) = &op;
  tail_ = &op;
  ++size_;
}

MILLRACE_INLINE file_operation& file_queue::pop() noexcept {
  file_operation& op = *head_;
  remove(op);
  return op;
}

MILLRACE_INLINE void file_queue::remove(file_operation& op) noexcept {
  (op.prev_ == nullptr ? head_ : op.prev_->next_) = op.next_;
  (op.next_ == nullptr ? tail_ : op.next_->prev_) = op.prev_;
  op.prev_ = op.next_ = nullptr;
  op.place_ = place::outside;
  --size_;
}

MILLRACE_INLINE void file_queue::swap(file_queue& other) noexcept {
  file_operation* const head = head_;
  file_operation* const tail = tail_;
  const std::size_t size = size_;
  head_ = other.head_;
  tail_ = other.tail_;
  size_ = other.size_;
  other.head_ = head;
  other.tail_ = tail;
  other.size_ = size;
}

}  // namespace millrace::detail
