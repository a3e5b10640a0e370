// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/base/owned.hpp>
#include <millrace/base/shared.hpp>
#include <millrace/coro/detail/generator_promise.hpp>
#include <millrace/coro/give.hpp>
#include <millrace/coro/stage_bounds.hpp>

namespace millrace {

namespace detail {

template <class T>
class inlet;

/// What co_await makes of next() and next_in_place(); await_resume() is theirs.
template <class T>
class asking {
 public:
  explicit asking(std::coroutine_handle<generator_promise<T>> generator) noexcept : generator_(generator) {}
  asking(const asking&) = delete;
  asking& operator=(const asking&) = delete;
  ~asking() {
    if (outcome_ == waits) generator_.promise().wait_no_more();
  }

  MILLRACE_ALWAYS_INLINE bool await_ready() noexcept {
    generator_promise<T>& p = generator_.promise();
    if (MILLRACE_UNLIKELY(p.phase_ != phase::idle)) {
      outcome_ = otherwise;
      return p.ask_otherwise(generator_);
    }
    T* const item = p.ask_idle();
    outcome_ = reinterpret_cast<std::uintptr_t>(item);  // none: otherwise
    return MILLRACE_LIKELY(item != nullptr) || p.has_come();
  }
  template <class Consumer>
  void await_suspend(std::coroutine_handle<Consumer> consumer) noexcept {
    outcome_ = waits;
    generator_.promise().wait(generator_, consumer, consumer.promise());
  }

 protected:
  /// The item, where it lies until the generator runs again; null at the end. Throws what ended the generator.
  MILLRACE_ALWAYS_INLINE T* take() {
    if (MILLRACE_LIKELY(outcome_ > waits)) return reinterpret_cast<T*>(outcome_);
    const bool waited = outcome_ == waits;
    outcome_ = otherwise;
    return generator_.promise().take(waited);
  }

 private:
  static constexpr std::uintptr_t otherwise = 0;  ///< the generator is to be asked what came
  static constexpr std::uintptr_t waits = 1;      ///< the same, when it has come
  std::coroutine_handle<generator_promise<T>> generator_;
  // These two, or the address of an item: one word, so that the compiler sees that who has an item neither has to ask
  // nor waits. What the generator is known to hold it forgets when it calls the generator.
  std::uintptr_t outcome_;  // set by await_ready(), which does not throw: the destructor reads it
};

template <class T>
class next_awaiter : public asking<T> {
 public:
  using asking<T>::asking;
  MILLRACE_ALWAYS_INLINE std::optional<T> await_resume() {
    T* const item = this->take();
    if (MILLRACE_UNLIKELY(item == nullptr)) return std::nullopt;
    return std::optional<T>(std::move(*item));
  }
};
template <class T>
class in_place_awaiter : public asking<T> {
 public:
  using asking<T>::asking;
  MILLRACE_ALWAYS_INLINE T* await_resume() { return this->take(); }
};

/// What next() and next_in_place() return by reference: parts of the generator, for a temporary would be one more thing
/// that every item writes into its consumer's frame.
template <class T>
class next_awaitable {
 public:
  MILLRACE_ALWAYS_INLINE next_awaiter<T> awaited_by(promise_base& consumer) const {
    return next_awaiter<T>(prepared(consumer));
  }

 protected:
  next_awaitable() noexcept = default;
  explicit next_awaitable(std::coroutine_handle<generator_promise<T>> handle) noexcept : handle_(handle) {}
  MILLRACE_ALWAYS_INLINE std::coroutine_handle<generator_promise<T>> prepared(promise_base& consumer) const {
    generator_promise<T>& p = handle_.promise();
    if (MILLRACE_UNLIKELY(p.phase_ != phase::idle)) p.prepare(consumer);
    return handle_;
  }

  std::coroutine_handle<generator_promise<T>> handle_;
};
template <class T>
class in_place_awaitable : public next_awaitable<T> {
 public:
  MILLRACE_ALWAYS_INLINE in_place_awaiter<T> awaited_by(promise_base& consumer) const {
    return in_place_awaiter<T>(this->prepared(consumer));
  }

 protected:
  using next_awaitable<T>::next_awaitable;
};

}  // namespace detail

/// A stream of items made by a coroutine that may wait: `async_generator<int> g() { co_yield 1; co_await ...; }`.
///
///     while (std::optional<T> item = co_await g.next()) use(*item);
///
/// Concurrency: pull. Nothing runs until next() is awaited; one consumer, one outstanding next(). While the items are
/// there without waiting, consumer and generators run as nested calls; every executor::inline_budget hops go through
/// the run queue. Yielding: `co_yield give(x)` and `co_yield std::move(x)` move, `co_yield x` copies.
/// Lifetime: owns its coroutine, whose parameters live in the frame. Cancellation: dropping the generator destroys the
/// frame at its current suspension point and everything below it. Dropping a next() that waits loses nothing: the
/// item is there for the following next(). Errors: an exception is thrown by one next(); after that, and after the
/// end, next() gives nullopt.
template <class T>
class [[nodiscard("a generator does nothing until next() is awaited")]] async_generator
    : private detail::in_place_awaitable<T> {
  using base = detail::in_place_awaitable<T>;
  using base::handle_;

 public:
  using promise_type = detail::generator_promise<T>;
  using value_type = T;

  async_generator() noexcept = default;
  async_generator(std::coroutine_handle<promise_type> handle) noexcept : base(handle) {}  // NOLINT: from the promise
  async_generator(async_generator&& other) noexcept : base(other.release()) {}
  async_generator& operator=(async_generator&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = other.release();
    }
    return *this;
  }
  ~async_generator() { reset(); }

  explicit operator bool() const noexcept { return handle_ != nullptr; }

  /// Gives the generator a line of its own in the stage table. `name` must be a literal or live as long as the run.
  async_generator&& named(const char* name) && {
    MILLRACE_ASSERT(handle_ != nullptr, "named() on an empty generator");
    promise_type& p = handle_.promise();
    if (p.extras_ && !p.extras_->bounds.empty() && p.extras_->bounds.back().name == p.name_) {
      p.extras_->bounds.back().name = name;
    }
    p.name_ = name;
    return std::move(*this);
  }

  /// Declares the most that this generator's stage holds at once, under the name given by named() before.
  async_generator&& bounded(std::size_t items, std::size_t bytes) && {
    const char* const name = handle_.promise().name_;
    return std::move(*this).bounded(name == nullptr ? "stage" : name, items, bytes);
  }
  /// The same under a name of its own, a literal: for what a stage holds beside its items.
  async_generator&& bounded(const char* what, std::size_t items, std::size_t bytes) && {
    extras().bounds.push_back(stage_bounds{what, items, bytes});
    return std::move(*this);
  }

  /// What the stages up to this one have declared, sources first.
  std::vector<stage_bounds> bounds() const {
    std::vector<stage_bounds> stated;
    if (!handle_ || !handle_.promise().extras_) return stated;
    for (const stage_bounds& b : handle_.promise().extras_->bounds) {
      if (b.rank == no_rank) stated.push_back(b);
    }
    return stated;
  }

  /// Declares that the items are the share of process `index` among those that train together: run() shows the progress
  /// of process 0 only.
  async_generator&& of_rank(std::uint32_t index) && {
    const char* const name = handle_.promise().name_;
    extras().bounds.push_back(stage_bounds{name == nullptr ? "stage" : name, 0, 0, index});
    return std::move(*this);
  }
  /// What of_rank() declared here or, first of all, in a stage before; no_rank when nobody did.
  std::uint32_t declared_rank() const noexcept {
    if (!handle_ || !handle_.promise().extras_) return no_rank;
    for (const stage_bounds& b : handle_.promise().extras_->bounds) {
      if (b.rank != no_rank) return b.rank;
    }
    return no_rank;
  }

  /// For stages that consume generators without operator|: what was declared, a rank too, moves on to the generator
  /// that they make, `return std::move(made).inherit(consumed.take_bounds())`.
  std::vector<stage_bounds> take_bounds() {
    if (!handle_ || !handle_.promise().extras_) return {};
    return std::exchange(handle_.promise().extras_->bounds, {});
  }
  async_generator&& inherit(std::vector<stage_bounds> upstream) && {
    if (upstream.empty()) return std::move(*this);
    std::vector<stage_bounds>& own = extras().bounds;
    upstream.insert(upstream.end(), own.begin(), own.end());
    own = std::move(upstream);
    return std::move(*this);
  }

  /// Keeps `object` as long as the coroutine: for function objects whose coroutine refers to their captures.
  async_generator&& keep(shared<void> object) && {
    extras().kept.push_back(std::move(object));
    return std::move(*this);
  }

  /// Awaitable for the next item: std::optional<T>, nullopt at the end.
  detail::next_awaitable<T>& next() noexcept {
    MILLRACE_ASSERT(handle_ != nullptr, "next() on an empty generator");
    return *this;
  }

  /// The same without moving the item: awaitable for a T*, null at the end. The item lies in the generator, which keeps
  /// it until the next one is asked for or the generator is dropped; it may be moved from. What the consumer does not
  /// move, or writes, the generator finds so.
  detail::in_place_awaitable<T>& next_in_place() noexcept {
    MILLRACE_ASSERT(handle_ != nullptr, "next() on an empty generator");
    return *this;
  }

 private:
  friend class detail::inlet<T>;

  detail::generator_extras& extras() {
    MILLRACE_ASSERT(handle_ != nullptr, "bounds of an empty generator");
    auto& pointer = handle_.promise().extras_;
    if (!pointer) pointer = make_owned<detail::generator_extras>();
    return *pointer;
  }
  /// The coroutine, which this owner forgets. (std::exchange would be one more template for every type of result.)
  std::coroutine_handle<promise_type> release() noexcept {
    const std::coroutine_handle<promise_type> given = handle_;
    handle_ = nullptr;
    return given;
  }
  void reset() noexcept {
    if (!handle_) return;
    const auto extras = std::move(handle_.promise().extras_);  // goes last: parameters may refer to kept objects, too
    release().destroy();
  }
};

}  // namespace millrace
