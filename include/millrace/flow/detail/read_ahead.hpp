// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <deque>
#include <exception>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/item_bytes.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/detail/compactor.hpp>
#include <millrace/sync/event.hpp>

/// \file
/// How stages work ahead of their consumer. A `pump` pulls the source in a task of its own, while the stage has room. A
/// `window` counts the items that the stage holds; in a `delivery_window` an item counts until the consumer has taken
/// it. The queue of buffer() is `read_ahead`. Other stages keep the items of the pump in a form of their own:
/// map_concurrent() keeps running tasks, interleave() open sources, untar() and lines() objects being unpacked.

namespace millrace::inline MILLRACE_ABI::detail {

/// The context of a generator's coroutine, for itself and the tasks that work ahead for it.
///
///     const generator_context<T> here = co_await this_generator<T>();
template <class T>
class generator_context : public coroutine_context {
 public:
  explicit generator_context(generator_promise<T>& promise) noexcept
      : coroutine_context(promise.context()), promise_(&promise) {}

  /// True if the consumer has not yet taken the item that was yielded last. It takes it as soon as it runs, unless it
  /// dropped its next() before the item came.
  bool holds_item() const noexcept { return promise_->has_item(); }

 private:
  generator_promise<T>* promise_;
};

/// Awaitable inside an async_generator<T>; never suspends.
template <class T>
class this_generator {
 public:
  this_generator() noexcept = default;
  class awaiter {
   public:
    explicit awaiter(generator_promise<T>& promise) noexcept : promise_(promise) {}
    bool await_ready() const noexcept { return true; }
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    generator_context<T> await_resume() const noexcept { return generator_context<T>(promise_); }

   private:
    generator_promise<T>& promise_;
  };
  awaiter awaited_by(promise_base& promise) const noexcept {
    return awaiter(static_cast<generator_promise<T>&>(promise));
  }
};

/// Counts the items and bytes that a stage holds, against its bound.
///
/// There is room for one more item while both bounds allow it. The size of the next item is not known before it comes,
/// so room in bytes means room for the largest item so far: the bound in bytes is exceeded only by an item larger than
/// every one before it. An empty window always has room, so no item can block the stream.
class window {
 public:
  window(std::size_t items, std::size_t bytes) noexcept : max_items_(items), max_bytes_(bytes) {}

  bool room() const noexcept {
    if (items_ == 0) return true;
    return items_ < max_items_ && bytes_ <= max_bytes_ && largest_ <= max_bytes_ - bytes_;
  }
  /// Called if there is no room: true if the number of items is the reason, and not their bytes.
  bool full_by_number() const noexcept { return items_ >= max_items_; }
  void add(std::size_t bytes) noexcept {
    ++items_;
    bytes_ += bytes;
    largest_ = std::max(largest_, bytes);
  }
  void remove(std::size_t bytes) noexcept {
    --items_;
    bytes_ -= bytes;
  }
  /// An item that was added with `before` bytes now has `after`.
  void resize(std::size_t before, std::size_t after) noexcept { bytes_ = bytes_ - before + after; }
  /// From now on the next item is expected to have up to `bytes`.
  void expect(std::size_t bytes) noexcept { largest_ = std::max(largest_, bytes); }

  std::size_t items() const noexcept { return items_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  const std::size_t max_items_;
  const std::size_t max_bytes_;
  std::size_t items_ = 0;
  std::size_t bytes_ = 0;
  std::size_t largest_ = 0;
};

/// The bytes that a stage with a window of `items` items of these types declares: its bound if sizes are known.
template <class... Types>
constexpr std::size_t declared_bytes(std::size_t items, std::size_t bytes) noexcept {
  if ((counts_bytes_v<Types> || ...)) return bytes;
  std::size_t each = 0;
  ((each = std::max(each, sizeof(Types))), ...);
  return items > bytes / each ? bytes : items * each;
}

/// A window of items that the generator `here` yields: each counts until the consumer has taken it.
template <class T>
class delivery_window : public window {
 public:
  delivery_window(std::size_t items, std::size_t bytes, generator_context<T> here) noexcept
      : window(items, bytes), here_(here) {}

  MILLRACE_ALWAYS_INLINE bool room() noexcept {
    remove_taken();
    return window::room();
  }
  /// Notified when there may be room; by the stage too, if it removes or resizes an item itself.
  notifier& freed() noexcept { return freed_; }

  /// An item of `bytes` is about to be yielded. A task that waits for room runs after the consumer has taken it.
  void yielding(std::size_t bytes) noexcept {
    yielded_ = true;
    yielded_bytes_ = bytes;
    freed_.notify();
  }
  /// After the co_yield, which returns when the item has been taken.
  void remove_taken() noexcept {
    if (!yielded_ || here_.holds_item()) return;
    yielded_ = false;
    remove(yielded_bytes_);
    freed_.notify();  // a task may have run and found the item still there: a next() was dropped
  }

 private:
  generator_context<T> here_;
  notifier freed_;
  bool yielded_ = false;  // an item that counts, and may have been taken
  std::size_t yielded_bytes_ = 0;
};

/// A task that pulls a generator as long as there is room, and gives the items to its owner, a class with
///
///     bool has_room();                // asked before an item is pulled, and again whenever `freed` was notified
///     void take(T&& item);            // keeps it, or starts work on it
///     void source_ended() noexcept;   // no more will come: ended() is true
///
/// The pulling ends with the source, by stop(), or by an exception of the source or of take(). The source is then
/// dropped at once. Destroying the pump stops it wherever it is. Declare it as the owner's last member, and the source
/// before the items that the owner keeps of it: the pump goes first, the source last.
template <class T, class Owner>
class pump {
 public:
  explicit pump(notifier& freed) noexcept : freed_(freed) {}
  pump(const pump&) = delete;
  pump& operator=(const pump&) = delete;

  /// Starts to pull `source`. Call once.
  void start(const coroutine_context& here, Owner& owner, async_generator<T>& source) {
    running_ = spawned<void>(here, run(*this, owner, source));
  }
  /// No item is given to the owner any more, not even one that is being waited for.
  void stop() noexcept {
    stopped_ = true;
    freed_.notify();
  }
  bool ended() const noexcept { return ended_; }
  /// The exception that ended the source, once; null if it ended without one.
  std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }
  /// Throws that, if there is one.
  void rethrow() {
    if (error_) std::rethrow_exception(take_error());
  }

 private:
  static task<void> run(pump& self, Owner& owner, async_generator<T>& source) {
    try {
      for (;;) {
        while (!owner.has_room() && !self.stopped_) co_await self.freed_.wait();
        if (self.stopped_) break;
        T* const item = co_await source.next_in_place();
        if (item == nullptr || self.stopped_) break;
        owner.take(std::move(*item));
      }
    } catch (...) {
      self.error_ = std::current_exception();
    }
    source = async_generator<T>();
    self.ended_ = true;
    owner.source_ended();
  }

  notifier& freed_;
  bool stopped_ = false;
  bool ended_ = false;
  std::exception_ptr error_;
  spawned<void> running_;  // declared last: destroyed first, it refers to the rest
};

/// Items that are pulled ahead of the consumer, in a queue bounded in items and bytes; part of a generator that yields
/// from it:
///
///     while (!ahead.has_item() && !ahead.ended()) co_await arrived.wait();
///     if (!ahead.has_item()) { ahead.rethrow(); ... }
///     co_yield give(ahead.yielding());
///     ahead.pop();
template <class T>
class read_ahead {
 public:
  /// Starts at once. `arrived` is notified of every item and of the end; `log`, if given, gets a pointer to this object
  /// for every item, in the order in which they come. Both outlive this object.
  read_ahead(generator_context<T> here, async_generator<T> source, std::size_t items, std::size_t bytes,
             notifier& arrived, std::deque<read_ahead*>* log = nullptr)
      : source_(std::move(source)), window_(items, bytes, here), arrived_(arrived), log_(log) {
    pump_.start(here, *this, source_);
  }
  read_ahead(const read_ahead&) = delete;
  read_ahead& operator=(const read_ahead&) = delete;

  bool has_item() const noexcept { return !queue_.empty(); }
  /// The source has ended; items may still be queued.
  bool ended() const noexcept { return pump_.ended(); }
  /// After the last item: throws the exception of the source. See pump.
  void rethrow() { pump_.rethrow(); }
  std::exception_ptr take_error() noexcept { return pump_.take_error(); }

  T& front() noexcept { return queue_.front(); }
  /// The first item, which is about to be yielded; pop() follows.
  T& yielding() {
    T& item = queue_.front();
    window_.yielding(item_bytes(item));
    return item;
  }
  void pop() noexcept {
    window_.remove_taken();
    queue_.pop_front();
  }

 private:
  friend pump<T, read_ahead>;

  bool has_room() noexcept { return window_.room(); }
  void take(T&& item) {
    kept_(item);
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
  void source_ended() noexcept { arrived_.notify(); }

  async_generator<T> source_;
  std::deque<T> queue_;
  delivery_window<T> window_;
  compactor<T> kept_;
  notifier& arrived_;
  std::deque<read_ahead*>* log_;
  pump<T, read_ahead> pump_{window_.freed()};  // declared last
};

}  // namespace millrace::detail
