// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/detail/compactor.hpp>
#include <millrace/flow/detail/delivery.hpp>
#include <millrace/flow/detail/window.hpp>
#include <millrace/sync/notifier.hpp>

namespace millrace::detail {

/// Pulls a generator ahead, by a task of its own, into a queue bounded in items and bytes; part of a generator that
/// yields from the queue:
///
///     while (!p.has_item() && !p.ended()) co_await arrived.wait();
///     if (!p.has_item()) { p.rethrow(); ... }
///     p.hand_over();
///     co_yield give(p.front());
///     p.pop();
///
/// An item counts against the bound until the consumer has taken it. The source is dropped as soon as it has ended.
template <class T>
class puller {
 public:
  /// Starts at once. `arrived` is notified of every item and of the end; `log`, if given, gets a pointer to this object
  /// for every item, in the order of their coming. Both outlive it.
  puller(executor& ex, stage_record* stage, async_generator<T> source, std::size_t items, std::size_t bytes,
         delivery<T> yielded, notifier& arrived, std::deque<puller*>* log = nullptr)
      : source_(std::move(source)), window_(items, bytes), yielded_(yielded), arrived_(arrived), log_(log) {
    pump_ = spawned<void>(ex, pump(*this), stage);
  }
  puller(const puller&) = delete;
  puller& operator=(const puller&) = delete;

  bool has_item() const noexcept { return !queue_.empty(); }
  /// Nothing more will come; what is queued is still there.
  bool ended() const noexcept { return ended_; }
  /// After the last item: throws what the source threw, if it did.
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  /// The same without throwing it; null where it did not throw.
  std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }

  T& front() noexcept { return queue_.front(); }
  void hand_over() {
    handed_ = true;
    handed_bytes_ = item_bytes(queue_.front());
    space_.notify();  // the task runs when the consumer has taken the item
  }
  void pop() noexcept {
    release_taken();
    queue_.pop_front();
  }

 private:
  static task<void> pump(puller& self) {
    try {
      for (;;) {
        while (!self.room()) co_await self.space_.wait();
        std::optional<T> item = co_await self.source_.next();
        if (!item) break;
        self.kept_(*item);
        self.push(std::move(*item));
      }
    } catch (...) {
      self.error_ = std::current_exception();
    }
    self.source_ = async_generator<T>();
    self.ended_ = true;
    self.arrived_.notify();
  }
  bool room() noexcept {
    release_taken();
    return window_.room();
  }
  void release_taken() noexcept {
    if (!handed_ || yielded_.pending()) return;
    handed_ = false;
    window_.remove(handed_bytes_);
    space_.notify();  // the task may have found the item still there: a next() was dropped
  }
  void push(T&& item) {
    const std::size_t bytes = item_bytes(item);
    if (log_ != nullptr) log_->push_back(this);
    try {
      queue_.push_back(std::move(item));
    } catch (...) {
      if (log_ != nullptr) log_->pop_back();  // an arrival that no item follows would be waited for
      throw;
    }
    window_.add(bytes);
    arrived_.notify();
  }

  async_generator<T> source_;
  std::deque<T> queue_;
  window window_;
  compactor<T> kept_;
  delivery<T> yielded_;
  bool handed_ = false;  // the front of the queue has been yielded and may have been taken
  std::size_t handed_bytes_ = 0;
  bool ended_ = false;
  std::exception_ptr error_;
  notifier& arrived_;
  notifier space_;
  std::deque<puller*>* log_;
  spawned<void> pump_;  // declared last: destroyed first, it refers to all of the above
};

}  // namespace millrace::detail
