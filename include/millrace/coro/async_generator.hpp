// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/coro/detail/generator_promise.hpp>
#include <millrace/coro/detail/parameters.hpp>
#include <millrace/coro/give.hpp>
#include <millrace/coro/stage_bounds.hpp>

namespace millrace {

namespace detail {

/// Waits for the next item of a generator: a std::optional of it, or (`Result` is a pointer) where it lies.
template <class T, class Result>
class next_awaiter {
 public:
  explicit next_awaiter(generator_promise<T>& generator) noexcept : generator_(generator) {}
  next_awaiter(const next_awaiter&) = delete;
  next_awaiter& operator=(const next_awaiter&) = delete;
  ~next_awaiter() {
    if (MILLRACE_UNLIKELY(item_ == nullptr) && waits_) generator_.wait_no_more();
  }

  MILLRACE_ALWAYS_INLINE bool await_ready() {
    waits_ = false;
    item_ = nullptr;
    item_ = generator_.ask();
    return MILLRACE_LIKELY(item_ != nullptr) || generator_.has_come();
  }
  template <class Consumer>
  void await_suspend(std::coroutine_handle<Consumer> consumer) {
    generator_.wait(generator_.handle(), consumer, consumer.promise());
    waits_ = true;  // not before: where that throws, another next() waits
  }
  MILLRACE_ALWAYS_INLINE Result await_resume() {
    T* const item = MILLRACE_LIKELY(item_ != nullptr) ? item_ : take_later();
    if constexpr (std::is_pointer_v<Result>) {
      return item;
    } else {
      if (MILLRACE_UNLIKELY(item == nullptr)) return std::nullopt;
      return Result(std::move(*item));
    }
  }

 private:
  T* take_later() {
    waits_ = false;
    return generator_.take();
  }

  generator_promise<T>& generator_;
  // Both are set by await_ready(), which runs first: where an item comes at once the compiler then knows them.
  T* item_;  // null: none came at once
  bool waits_;
};

/// What next() and next_in_place() return.
template <class T, class Result>
class next_awaitable {
 public:
  explicit next_awaitable(generator_promise<T>& generator) noexcept : generator_(generator) {}
  MILLRACE_ALWAYS_INLINE next_awaiter<T, Result> awaited_by(promise_base& consumer) const {
    generator_.asked_by(consumer);
    return next_awaiter<T, Result>(generator_);
  }

 private:
  generator_promise<T>& generator_;
};

}  // namespace detail

/// A stream of items made by a coroutine that may wait, for one consumer, a coroutine too.
///
/// Concurrency: pull. Nothing runs until next() is awaited, and then up to the following co_yield. There is one
/// consumer with one outstanding next(); all of it is on the consumer's executor, to which the first next() binds the
/// generator. While items are there without waiting, generators run as nested calls of their consumers, so the depth of
/// the stack is that of the pipeline; every executor::inline_budget hops go through the run queue, so that data that is
/// always there starves nobody.
///
/// Cancellation: dropping the generator destroys its coroutine where it is suspended, and everything below it. Dropping
/// a next() that waits loses nothing: the generator goes on to its co_yield, and the item is there for the following
/// next().
///
/// Lifetime: the generator owns its coroutine, in whose frame the parameters live: pass values (the
/// compiler refuses rvalue references; what a reference to const refers to must outlive the generator), and no lambda
/// with captures that dies before it. `co_yield give(x)` and `co_yield std::move(x)` hand x over to be moved from,
/// `co_yield x` a copy of it.
///
/// Errors: what escapes from the coroutine is thrown by one next(). After that, and after the end, next() gives
/// nullopt. usage_error for an empty generator, a second next() while one waits, another executor.
///
/// Example:
///
///     async_generator<int> slow_squares(int count) {
///       for (int i = 0; i < count; ++i) {
///         co_await sleep_for(1ms);
///         co_yield i * i;
///       }
///     }
///     task<int> sum(async_generator<int> numbers) {
///       int total = 0;
///       while (std::optional<int> n = co_await numbers.next()) total += *n;
///       co_return total;
///     }
template <class T>
class [[nodiscard("a generator does nothing until next() is awaited")]] async_generator {
 public:
  using promise_type = detail::generator_promise<T>;
  using value_type = T;

  async_generator() noexcept = default;
  async_generator(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}  // NOLINT: from the promise
  async_generator(async_generator&& other) noexcept : handle_(other.release()) {}
  async_generator& operator=(async_generator&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = other.release();
    }
    return *this;
  }
  ~async_generator() { reset(); }

  explicit operator bool() const noexcept { return handle_ != nullptr; }

  /// Gives the generator a line of its own in the stage table. `name` must be a literal or live as long as the run; so
  /// must `advice`, if there is one: what run_stats::verdict() says helps when this stage waits for its own I/O, an
  /// option of it. Empty: nothing helps.
  async_generator&& named(const char* name, const char* advice) && {
    async_generator&& self = std::move(*this).named(name);
    handle_.promise().advice_ = advice;
    return std::move(self);
  }
  async_generator&& named(const char* name) && {
    promise_type& p = promise();
    if (p.extras_ && !p.extras_->bounds.empty() && p.extras_->bounds.back().name == p.name_) {
      p.extras_->bounds.back().name = name;
    }
    p.call(name);
    return std::move(*this);
  }

  /// Gives a generator without a name a line all the same, under its number: what pipes do with the stages of users.
  void numbered() noexcept {
    if (handle_ && handle_.promise().name_ == nullptr) handle_.promise().call(stage_record::numbered);
  }

  /// Declares the most that this generator's stage holds at once, under the name given by named() before.
  async_generator&& bounded(std::size_t items, std::size_t bytes) && {
    const char* const name = promise().name_;
    return std::move(*this).bounded(name == nullptr || *name == 0 ? "stage" : name, items, bytes);
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
      if (!b.rank) stated.push_back(b);
    }
    return stated;
  }

  /// Declares that the items are the share of process `index` among those that train together: run() shows the progress
  /// of process 0 only.
  async_generator&& of_rank(std::uint32_t index) && {
    const char* const name = promise().name_;
    extras().bounds.push_back(stage_bounds{name == nullptr ? "stage" : name, 0, 0, index});
    return std::move(*this);
  }
  /// What of_rank() declared here or, first of all, in a stage before; nullopt when nobody did.
  std::optional<std::uint32_t> declared_rank() const noexcept {
    if (!handle_ || !handle_.promise().extras_) return std::nullopt;
    for (const stage_bounds& b : handle_.promise().extras_->bounds) {
      if (b.rank) return b.rank;
    }
    return std::nullopt;
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
  async_generator&& keep(std::shared_ptr<void> object) && {
    extras().kept.push_back(std::move(object));
    return std::move(*this);
  }

  /// Awaitable for the next item: std::optional<T>, nullopt at the end.
  detail::next_awaitable<T, std::optional<T>> next() {
    return detail::next_awaitable<T, std::optional<T>>(promise());
  }

  /// The same without moving the item: awaitable for a T*, null at the end. The item lies in the generator, which keeps
  /// it until the next one is asked for or the generator is dropped; it may be moved from. What the consumer does not
  /// move, or writes, the generator finds so.
  detail::next_awaitable<T, T*> next_in_place() { return detail::next_awaitable<T, T*>(promise()); }

 private:
  promise_type& promise() const {
    if (MILLRACE_UNLIKELY(!handle_)) detail::misused("a generator was used that is empty: moved from, or never made");
    return handle_.promise();
  }
  detail::generator_extras& extras() {
    auto& pointer = promise().extras_;
    if (!pointer) pointer = std::make_unique<detail::generator_extras>();
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

  std::coroutine_handle<promise_type> handle_;
};

}  // namespace millrace

template <class T, class... Parameters>
struct std::coroutine_traits<millrace::async_generator<T>, Parameters...>
    : millrace::detail::coroutine_traits<millrace::async_generator<T>, Parameters...> {};
