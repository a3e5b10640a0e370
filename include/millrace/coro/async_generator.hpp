// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <millrace/coro/detail/generator_promise.hpp>
#include <millrace/coro/detail/parameters.hpp>
#include <millrace/coro/give.hpp>

namespace millrace {

template <class T>
class async_generator;

namespace detail {

/// Waits for the next item of a generator: a std::optional of it, or (`Result` is a pointer) where it lies.
template <class T, class Result>
class next_awaiter {
 public:
  /// Asks at once, before the consumer suspends: mostly the item is there then.
  MILLRACE_ALWAYS_INLINE next_awaiter(generator_promise<T>& generator, promise_base& consumer)
      : generator_(generator), item_(generator.ask(consumer)) {}
  next_awaiter(const next_awaiter&) = delete;
  next_awaiter& operator=(const next_awaiter&) = delete;
  ~next_awaiter() {
    if (MILLRACE_UNLIKELY(item_ == nullptr) && waits_) generator_.wait_no_more();
  }

  MILLRACE_ALWAYS_INLINE bool await_ready() const noexcept {
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
  T* const item_;  // null: none came at once
  bool waits_ = false;
};

/// What next() and next_in_place() return.
template <class T, class Result>
class next_awaitable {
 public:
  explicit next_awaitable(generator_promise<T>& generator) noexcept : generator_(generator) {}
  MILLRACE_ALWAYS_INLINE next_awaiter<T, Result> awaited_by(promise_base& consumer) const {
    return next_awaiter<T, Result>(generator_, consumer);
  }

 private:
  generator_promise<T>& generator_;
};

/// For what wraps a generator. usage_error for an empty one.
template <class T>
generator_promise_base& promise_of(const async_generator<T>& generator) {
  return generator.promise();
}

}  // namespace detail

/// Items made by a coroutine that may wait, for one consumer, a coroutine too.
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

  /// Keeps `object` as long as the coroutine: for function objects whose coroutine refers to their captures. What was
  /// kept before is let go first.
  async_generator&& keep(std::shared_ptr<void> object) && {
    std::shared_ptr<void>& kept = promise().kept_;
    if (kept) {
      using both = std::pair<std::shared_ptr<void>, std::shared_ptr<void>>;  // the second one goes first
      object = std::make_shared<both>(std::move(object), std::move(kept));
    }
    kept = std::move(object);
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
  friend detail::generator_promise_base& detail::promise_of<T>(const async_generator&);

  promise_type& promise() const {
    if (MILLRACE_UNLIKELY(!handle_)) detail::misused("a generator was used that is empty: moved from, or never made");
    return handle_.promise();
  }
  /// The coroutine, which this owner forgets. (std::exchange would be one more template for every type of result.)
  std::coroutine_handle<promise_type> release() noexcept {
    const std::coroutine_handle<promise_type> given = handle_;
    handle_ = nullptr;
    return given;
  }
  void reset() noexcept {
    if (!handle_) return;
    // Goes last: parameters may refer to it, too.
    const std::shared_ptr<void> kept = std::move(handle_.promise().kept_);
    release().destroy();
  }

  std::coroutine_handle<promise_type> handle_;
};

}  // namespace millrace

template <class T, class... Parameters>
struct std::coroutine_traits<millrace::async_generator<T>, Parameters...>
    : millrace::detail::coroutine_traits<millrace::async_generator<T>, Parameters...> {};
