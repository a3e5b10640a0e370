// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/base/wait_list.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A bounded first-in first-out queue between coroutines of one executor.
///
/// `const bool sent = co_await c.send(std::move(item));` waits while `capacity` items are queued; false, and the item
/// is dropped, when the channel is closed. `std::optional<T> item = co_await c.receive();` waits while there are none.
/// close() ends it: queued items are still received, then receive() gives nullopt; close(error) makes it throw instead,
/// each time.
///
/// Concurrency: coroutines that wait are served in the order in which they came, without exception. An item that is
/// queued wakes one receiver and is reserved for it; an item that is taken wakes one sender and its room is reserved
/// for that. Waiters resume through the run queue; close() wakes all. Cancellation: dropping a send() or receive()
/// loses no queued item: items are moved only by a coroutine that runs. An item or room reserved for a waiter that is
/// dropped before it runs goes to the next one. Lifetime: the channel must outlive its waiters. Errors: usage_error for
/// a capacity of 0.
template <class T>
class channel {
 public:
  explicit channel(std::size_t capacity) : capacity_(capacity) {  // a deque allocates
    if (capacity == 0) detail::misused("a channel needs room for one item");
  }
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;

  class receiving;
  class sending;
  class sendable;

  /// True when the item was queued, false when the channel is closed.
  sendable send(T item) { return sendable(*this, std::move(item)); }

  /// The next item, nullopt when the channel is closed and empty; throws the exception given to close().
  detail::awaitable_of<receiving, channel> receive() noexcept {
    return detail::awaitable_of<receiving, channel>(*this);
  }

  /// An item that is available without waiting; nullopt otherwise. Throws the exception given to close() once there is
  /// nothing left.
  std::optional<T> try_receive() {
    if (has_item() && kept_items_ > 0) return std::nullopt;
    return item_or_end();
  }

  /// Queues without waiting, true; false when it is full, another sender waits, or it is closed.
  bool try_send(T item) {
    if (closed_ || !has_place() || kept_places_ > 0) return false;
    add(std::move(item));
    return true;
  }

  void close(std::exception_ptr error = nullptr) noexcept {
    if (closed_) return;
    closed_ = true;
    error_ = std::move(error);
    while (!receivers_.empty()) receivers_.pop().wake();
    while (!senders_.empty()) senders_.pop().wake();
  }

  bool closed() const noexcept { return closed_; }
  std::size_t size() const noexcept { return items_.size(); }

 private:
  // An item, or room for one, that is not reserved for a waiter.
  bool has_item() const noexcept { return items_.size() > kept_items_; }
  bool has_place() const noexcept { return items_.size() + kept_places_ < capacity_; }

  std::optional<T> item_or_end() {
    std::optional<T> item;
    if (has_item()) {
      item.emplace(std::move(items_.front()));
      remove_front();
    } else if (error_) {
      std::rethrow_exception(error_);  // again for the next receiver: none must take a broken stream for one that ended
    }
    return item;
  }
  void add(T&& item) {
    items_.push_back(std::move(item));
    serve_receivers();
  }
  void remove_front() noexcept {
    items_.pop_front();
    serve_senders();
  }
  void serve_receivers() noexcept {
    for (; !receivers_.empty() && has_item(); ++kept_items_) receivers_.pop().serve();
  }
  void serve_senders() noexcept {
    for (; !senders_.empty() && has_place(); ++kept_places_) senders_.pop().serve();
  }

  const std::size_t capacity_;
  std::deque<T> items_;
  std::size_t kept_items_ = 0;   // for receivers that were woken
  std::size_t kept_places_ = 0;  // for senders that were woken
  wait_list<receiving> receivers_;
  wait_list<sending> senders_;
  bool closed_ = false;
  std::exception_ptr error_;
};

template <class T>
class channel<T>::receiving : public waiter, private detail::waiting_awaiter {
 public:
  receiving(channel& c, promise_base& promise) noexcept : waiting_awaiter(promise), channel_(c) {}
  ~receiving() {
    if (!served_) return;
    --channel_.kept_items_;
    channel_.serve_receivers();
  }
  bool await_ready() const noexcept { return channel_.has_item() ? channel_.kept_items_ == 0 : channel_.closed_; }
  void await_suspend(std::coroutine_handle<> handle) noexcept {
    suspend(handle);
    channel_.receivers_.push(*this);
    channel_.serve_receivers();  // after those that have been woken and did not run yet
  }
  std::optional<T> await_resume() {
    if (!served_) return channel_.item_or_end();
    std::optional<T> item(std::move(channel_.items_.front()));  // if it throws, the item is the next one's
    served_ = false;
    --channel_.kept_items_;
    channel_.remove_front();
    return item;
  }

 private:
  friend class channel;
  void serve() noexcept {
    served_ = true;
    wake();
  }
  channel& channel_;
  bool served_ = false;  // an item is kept for it: the first one when it runs
};

template <class T>
class channel<T>::sending : public waiter, private detail::waiting_awaiter {
 public:
  sending(channel& c, T&& item, promise_base& promise)
      : waiting_awaiter(promise), channel_(c), item_(std::move(item)) {}
  ~sending() {
    if (!served_) return;
    --channel_.kept_places_;
    channel_.serve_senders();
  }
  bool await_ready() const noexcept {
    return channel_.closed_ || (channel_.has_place() && channel_.kept_places_ == 0);
  }
  void await_suspend(std::coroutine_handle<> handle) noexcept {
    suspend(handle);
    channel_.senders_.push(*this);
    channel_.serve_senders();  // after those that have been woken and did not run yet
  }
  bool await_resume() {
    if (channel_.closed_) return false;
    channel_.add(std::move(item_));  // if it throws, the place is the next one's
    if (served_) --channel_.kept_places_;
    served_ = false;
    return true;
  }

 private:
  friend class channel;
  void serve() noexcept {
    served_ = true;
    wake();
  }
  channel& channel_;
  T item_;
  bool served_ = false;  // a place is kept for it
};

/// A send that has not begun.
template <class T>
class [[nodiscard("nothing is sent until it is awaited")]] channel<T>::sendable {
 public:
  sendable(channel& c, T&& item) : channel_(c), item_(std::move(item)) {}
  sending awaited_by(promise_base& promise) && { return sending(channel_, std::move(item_), promise); }

 private:
  channel& channel_;
  T item_;
};

}  // namespace millrace
