// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include <millrace/coro/task.hpp>
#include <millrace/sync/signal.hpp>

namespace millrace {

/// A bounded first-in first-out queue between coroutines of one executor.
///
/// send() waits while `capacity` items are queued; receive() waits while there are none. close() ends it: what is
/// queued is still received, then receive() gives nullopt; close(error) makes it throw instead, each time. Sending to a
/// closed channel returns false and drops the item. Dropping a waiting send() or receive() loses no queued item: items
/// are moved only by a coroutine that runs. Waiters are woken through the run queue. The channel must outlive its
/// waiters.
template <class T>
class channel {
 public:
  explicit channel(std::size_t capacity) : capacity_(capacity == 0 ? 1 : capacity) {}  // a deque allocates
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;

  /// True when the item was queued, false when the channel is closed.
  task<bool> send(T item) {
    while (items_.size() >= capacity_ && !closed_) co_await changed_.wait();
    if (closed_) co_return false;
    items_.push_back(std::move(item));
    changed_.notify();
    co_return true;
  }

  /// The next item, nullopt when the channel is closed and empty; throws what it was closed with.
  task<std::optional<T>> receive() {
    while (items_.empty() && !closed_) co_await changed_.wait();
    co_return try_receive();
  }

  /// An item that is there already; nullopt otherwise. Throws what the channel was closed with once it is empty.
  std::optional<T> try_receive() {
    std::optional<T> item;
    if (!items_.empty()) {
      item.emplace(std::move(items_.front()));
      items_.pop_front();
      changed_.notify();
    } else if (error_) {
      std::rethrow_exception(error_);  // again for the next receiver: none must take a broken stream for one that ended
    }
    return item;
  }

  /// Queues without waiting; false when full or closed.
  bool try_send(T item) {
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    changed_.notify();
    return true;
  }

  void close(std::exception_ptr error = nullptr) noexcept {
    if (closed_) return;
    closed_ = true;
    error_ = std::move(error);
    changed_.notify();
  }

  bool closed() const noexcept { return closed_; }
  std::size_t size() const noexcept { return items_.size(); }

 private:
  const std::size_t capacity_;
  std::deque<T> items_;
  bool closed_ = false;
  std::exception_ptr error_;
  signal changed_;
};

}  // namespace millrace
