// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include <millrace/coro/executor.hpp>
#include <millrace/coro/item_bytes.hpp>
#include <millrace/flow/detail/window.hpp>
#include <millrace/sync/notifier.hpp>

namespace millrace::detail {

/// A bounded queue from coroutines of one executor to one ordinary thread, which blocks while it is empty.
template <class T>
class handover {
 public:
  /// `bytes`: of all items; one item always passes. 0: no bound.
  explicit handover(std::size_t capacity, std::size_t bytes = 0) : window_(capacity, bytes == 0 ? SIZE_MAX : bytes) {}

  // ---- the executor's side

  /// False when the queue is full; then room() is notified once there is room.
  bool reserve() {
    std::lock_guard lock(mutex_);
    if (window_.room()) return true;
    producer_waits_ = true;
    return false;
  }
  notifier& room() noexcept { return room_; }
  void push(T item) {
    {
      std::lock_guard lock(mutex_);
      const std::size_t bytes = item_bytes(item);
      items_.push_back(std::move(item));
      window_.add(bytes);
    }
    filled_.notify_one();
  }
  void finish(std::exception_ptr error) {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      error_ = std::move(error);
    }
    filled_.notify_one();
  }
  /// After finish(): whether the thread has taken everything; until then room() tells when to ask again.
  bool drained() {
    std::lock_guard lock(mutex_);
    if (items_.empty()) return true;
    producer_waits_ = true;
    return false;
  }
  /// Drops what nobody will take; for a consumer that has left.
  void clear() {
    for (;;) {                   // one by one: an empty deque would allocate, and nobody could be told
      std::optional<T> dropped;  // destroyed after the lock is gone
      std::lock_guard lock(mutex_);
      if (items_.empty()) return;
      window_.remove(item_bytes(items_.front()));
      dropped.emplace(std::move(items_.front()));
      items_.pop_front();
    }
  }
  /// The executor behind the queue; null before it runs and after it has ended.
  void attach(executor* ex) {
    {
      std::lock_guard lock(mutex_);
      executor_ = ex;
      // A thread that has left before the loop was there.
      if (ex != nullptr && stop_ != nullptr) ex->post_remote(*std::exchange(stop_, nullptr));
    }
    filled_.notify_one();
  }

  // ---- the thread's side

  /// Blocks for the next item; nullopt at the end. Throws what the other side failed with, once. `taken(item)` is
  /// called before the other side can see that the item is gone.
  template <class Taken>
  std::optional<T> pop(Taken&& taken) {
    std::unique_lock lock(mutex_);
    while (items_.empty() && !ended_) filled_.wait(lock);
    if (items_.empty()) {
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      return std::nullopt;
    }
    const std::size_t bytes = item_bytes(items_.front());
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    window_.remove(bytes);
    taken(std::as_const(*item));
    if (producer_waits_ && executor_ != nullptr) {
      producer_waits_ = false;
      executor_->post_remote(wake_);
    }
    return item;
  }

  /// Makes the executor call `stop` soon: at once, as soon as it runs, or never when it has ended. Call once.
  void send(remote_node& stop) {
    std::lock_guard lock(mutex_);
    if (executor_ != nullptr) {
      executor_->post_remote(stop);
    } else {
      stop_ = &stop;
    }
  }

 private:
  // Posted only while the producer waits, and it waits again only after this has run: one node is enough.
  class wake_producer final : public remote_node {
   public:
    explicit wake_producer(handover& h) noexcept : handover_(h) {}

   protected:
    void run() noexcept override { handover_.room_.notify(); }

   private:
    handover& handover_;
  };

  std::mutex mutex_;
  window window_;
  std::condition_variable filled_;
  std::deque<T> items_;
  bool ended_ = false;
  bool producer_waits_ = false;
  std::exception_ptr error_;
  executor* executor_ = nullptr;
  remote_node* stop_ = nullptr;  // waits for the executor
  notifier room_;                // the executor's thread only
  wake_producer wake_{*this};
};

}  // namespace millrace::detail
