// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/flow/detail/call.hpp>
#include <millrace/flow/detail/compactor.hpp>
#include <millrace/flow/detail/delivery.hpp>
#include <millrace/flow/detail/item_place.hpp>
#include <millrace/flow/detail/window.hpp>
#include <millrace/flow/order.hpp>
#include <millrace/sync/notifier.hpp>

namespace millrace::detail {

/// Functions that say what stands in the place of an item of a training for which they threw.
template <class F, class U>
concept fills_places = requires(const F& f, const epoch_mark& mark) {
  { f.in_place_of(mark) } -> std::same_as<U>;
};

/// The tasks that map_concurrent has started and the results that wait: part of the stage's generator.
///
/// A task of its own (the pump) pulls the source while there is room and starts `f(item)` for each item. A slot is
/// taken from the start of its task until the consumer has taken the result.
template <class U, class T, class F>
class concurrent {
 public:
  /// With `go_on` a failure does not stop the pulling.
  concurrent(async_generator<T>& source, F& f, std::size_t limit, std::size_t bytes, order o, delivery<U> yielded,
             bool go_on)
      : source_(source), f_(f), order_(o), window_(limit, bytes), yielded_(yielded), go_on_(go_on), slots_(limit + 1) {
    queue_.resize(slots_.size());
    for (slot& s : slots_) free_.push_back(&s);
  }
  concurrent(const concurrent&) = delete;
  concurrent& operator=(const concurrent&) = delete;

  void start(executor& ex, stage_record* stage) { pump_ = spawned<void>(ex, pump(*this, ex, stage), stage); }

  /// The next slot in the order of delivery has a result or an error.
  bool has_result() const noexcept { return queued_ > 0 && queue_[head_]->done; }
  /// Nothing is under way and nothing will come.
  bool ended() const noexcept { return pump_ended_ && free_.size() == slots_.size(); }
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  auto wait() noexcept { return progress_.wait(); }

  /// Of the next slot in the order of delivery: why there is no result; null where there is one.
  std::exception_ptr take_failure() noexcept { return std::exchange(queue_[head_]->error, nullptr); }
  /// And the place of its item.
  const item_place& place() const noexcept { return queue_[head_]->place; }
  /// Where its item stands in a training, kept where the function fills places.
  const epoch_mark& mark() const noexcept { return queue_[head_]->mark; }
  /// The result to yield next.
  U& hand_over() {
    slot& s = *queue_[head_];
    s.work = spawned<void>();
    handed_ = &s;
    space_.notify();  // the pump runs when the consumer has taken the result
    return *s.result;
  }
  /// After the yield, or after a failure: the slot can be used again.
  void pop() noexcept {
    slot& s = *queue_[head_];
    release_taken();
    if (!s.result) {
      s.work = spawned<void>();
      window_.remove(s.bytes);
      space_.notify();
    }
    head_ = (head_ + 1) % queue_.size();
    --queued_;
    s.result.reset();
    s.done = false;
    free_.push_back(&s);
  }

 private:
  struct slot {
    std::optional<U> result;
    std::exception_ptr error;
    std::size_t bytes = 0;
    bool done = false;
    item_place place;
    epoch_mark mark;
    spawned<void> work;
  };

  static task<void> pump(concurrent& self, executor& ex, stage_record* stage) {
    try {
      for (;;) {
        while (!self.room() && !self.failed_) co_await self.space_.wait();
        if (self.failed_) break;
        std::optional<T> item = co_await self.source_.next();
        if (!item || self.failed_) break;
        slot& mine = *self.free_.back();
        const std::size_t bytes = item_bytes(*item);
        self.kept_input_(*item);
        mine.place.note(*item);
        if constexpr (fills_places<F, U>) mine.mark = detail::mark_of_item(*item);
        task<void> work = run_one(self, mine, std::move(item));
        spawned<void> running(ex, std::move(work), stage);
        mine.work = std::move(running);
        self.begin(mine, bytes);
      }
    } catch (...) {
      self.error_ = std::current_exception();
    }
    self.source_ = async_generator<T>();
    self.pump_ended_ = true;
    self.progress_.notify();
  }

  static task<void> run_one(concurrent& self, slot& mine, std::optional<T> item) {
    std::size_t bytes = 0;
    try {
      task<U> work = detail::call(self.f_, std::move(*item));
      U result = co_await std::move(work);
      self.kept_result_(result);
      mine.result.emplace(std::move(result));
      bytes = item_bytes(*mine.result);  // the user's: what it throws is a failure of this item
    } catch (...) {
      mine.result.reset();
      mine.place.complete();
      mine.error = std::current_exception();
    }
    item.reset();  // the frame stays until the result is taken
    self.finish(mine, bytes);
  }

  bool room() noexcept {
    release_taken();
    return window_.room();
  }
  void release_taken() noexcept {
    if (handed_ == nullptr || yielded_.pending()) return;
    window_.remove(std::exchange(handed_, nullptr)->bytes);
    space_.notify();  // the pump may have found the result still there: a next() was dropped
  }
  // While a task runs, its input and a result as large as the largest so far are counted.
  void begin(slot& s, std::size_t input_bytes) noexcept {
    free_.pop_back();
    s.bytes = input_bytes + largest_result_;
    window_.add(s.bytes);
    if (order_ == order::ordered) push(s);
  }
  void finish(slot& s, std::size_t bytes) noexcept {
    if (s.error) {
      if (!go_on_) failed_ = true;
      space_.notify();
    }
    window_.resize(s.bytes, bytes);
    s.bytes = bytes;
    if (bytes > largest_result_) {
      largest_result_ = bytes;
      window_.expect(bytes);
    }
    s.done = true;
    if (order_ == order::arrival) push(s);
    if (has_result()) progress_.notify();
    space_.notify();
  }
  void push(slot& s) noexcept {
    queue_[(head_ + queued_) % queue_.size()] = &s;
    ++queued_;
  }

  async_generator<T>& source_;
  F& f_;
  const order order_;
  window window_;
  compactor<T> kept_input_;
  compactor<U> kept_result_;
  delivery<U> yielded_;
  const bool go_on_;
  std::size_t largest_result_ = 0;
  slot* handed_ = nullptr;  // yielded, and may have been taken
  bool failed_ = false;
  bool pump_ended_ = false;
  std::exception_ptr error_;  // of the source
  notifier progress_;
  notifier space_;
  std::vector<slot*> queue_;  // a ring: slots in the order of delivery
  std::size_t head_ = 0;
  std::size_t queued_ = 0;
  std::vector<slot*> free_;
  std::deque<slot> slots_;
  spawned<void> pump_;  // declared last: destroyed first, then the tasks in the slots
};

}  // namespace millrace::detail
