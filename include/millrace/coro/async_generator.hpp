// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/coro/detail/hop_metrics.hpp>
#include <millrace/coro/item_bytes.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {
/// The address of an object that is yielded by move: a number with a type of its own. A class that holds a pointer
/// would be a temporary that every co_yield writes into the generator's frame.
template <class T>
struct given_object {
  enum class address : std::uintptr_t {};
  static T& at(address a) noexcept { return *reinterpret_cast<T*>(static_cast<std::uintptr_t>(a)); }
};
}  // namespace detail

/// Returned by give(), for co_yield alone.
template <class T>
using given = typename detail::given_object<T>::address;

/// `co_yield give(x);` yields a named object by move. Works for every type under every supported compiler; in a
/// template that nvcc compiles, x must be of a type that depends on a parameter (`class Item = sample` does).
template <class T>
given<T> give(T& object) noexcept {
  return static_cast<given<T>>(reinterpret_cast<std::uintptr_t>(__builtin_addressof(object)));
}

template <class T>
class async_generator;

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// State of a generator. Two pointers say if it has an item and if its consumer waits.
enum class generator_phase {
  fresh,   ///< never asked: has no executor yet
  idle,    ///< nothing is asked of it
  asked,   ///< it runs or waits, or has an item that was not taken yet
  queued,  ///< asked when the inline budget was spent: it will run in the next turn
  ended,   ///< with or without an error
};

/// The part of a generator that does not depend on the type of its items.
///
/// A hop: the consumer calls ask(), which resumes the coroutine as a nested call. The coroutine yields: it stores the
/// address of the item and suspends; so ask() returns with the item, and the consumer has not suspended. If none comes
/// at once, the consumer suspends in wait(), a yield or the end resumes it later, and it gets the item from take().
/// If metrics are kept, each of these steps is reported to hop_metrics.
class generator_promise_base : public promise_base {
 public:
  std::suspend_always initial_suspend() const noexcept { return {}; }
  std::suspend_always final_suspend() noexcept {
    phase_ = generator_phase::ended;
    resume_continuation();
    return {};
  }
  void return_void() const noexcept {}

  /// True if an item was yielded and not taken yet.
  bool has_item() const noexcept { return item_ != nullptr; }

  /// True if there is something for the consumer: an item, or the end.
  bool has_answer() const noexcept { return item_ != nullptr || phase_ == generator_phase::ended; }

  /// The consumer has suspended: it is resumed with the next item or the end.
  void wait(std::coroutine_handle<> self, std::coroutine_handle<> consumer, promise_base& context);
  /// The next() that waits is dropped.
  void wait_no_more() noexcept {
    set_continuation(nullptr, nullptr);
    metrics_.consumer_left(*this);
  }

  hop_metrics& metrics() noexcept { return metrics_; }

  std::shared_ptr<void> kept_;  // outlives the coroutine: see async_generator::keep()

 protected:
  ~generator_promise_base() { metrics_.dropped(*this); }

  MILLRACE_ALWAYS_INLINE void yield_item(const void* item) noexcept {
    item_ = item;
    resume_continuation();
  }
  /// A next() of `consumer` begins. Returns true if the generator is idle; if not, an earlier next() was dropped, or it
  /// has ended.
  MILLRACE_ALWAYS_INLINE bool begin(promise_base& consumer) {
    return MILLRACE_LIKELY(phase_ == generator_phase::idle) || begin_unusual(consumer);
  }
  /// True if there is inline budget left, so that the idle coroutine is resumed now.
  MILLRACE_ALWAYS_INLINE bool may_resume() noexcept {
    phase_ = generator_phase::asked;
    if (MILLRACE_LIKELY(get_executor().spend_inline())) return true;
    phase_ = generator_phase::queued;
    return false;
  }
  /// Resumes the coroutine if it `is_idle` and there is inline budget left, with metrics.
  MILLRACE_NOINLINE void resume_with_metrics(promise_base& consumer, bool is_idle, std::coroutine_handle<> self) {
    if (MILLRACE_UNLIKELY(&get_executor() != &consumer.get_executor())) misused(other_executor);
    metrics_.asked_by(consumer);
    if (is_idle && may_resume()) metrics_.resume(*this, self);
  }
  MILLRACE_ALWAYS_INLINE const void* taken() noexcept {
    phase_ = generator_phase::idle;
    return std::exchange(item_, nullptr);
  }
  const void* item() const noexcept { return item_; }

 private:
  bool begin_unusual(promise_base& consumer);
  void check_consumer(promise_base& consumer) const;

  static constexpr const char* other_executor =
      "a generator was moved to another executor: from its first next() on it belongs to one";

  generator_phase phase_ = generator_phase::fresh;
  const void* item_ = nullptr;  // the item that was yielded; null when it is taken
  hop_metrics metrics_;
};

template <class T>
class generator_promise : public generator_promise_base {
 public:
  async_generator<T> get_return_object() noexcept { return async_generator<T>(frame_of(*this)); }
  std::coroutine_handle<> handle() noexcept { return std::coroutine_handle<generator_promise>::from_promise(*this); }

  /// An item that the generator keeps: the consumer gets a copy. Its address is taken only when the awaiter is in the
  /// frame: a trivially copyable one may be returned in registers.
  class yielded_copy {
   public:
    explicit yielded_copy(const T& item) : copy_(item) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<generator_promise> handle) noexcept {
      handle.promise().yield_item(__builtin_addressof(copy_));
    }
    void await_resume() const noexcept {}

   private:
    T copy_;
  };

  // These wake the consumer before the generator has suspended; it is resumed after that (executor::transfer()).
  // T may have an operator& of its own.
  std::suspend_always yield_value(given<T> item) noexcept {
    yield_item(__builtin_addressof(given_object<T>::at(item)));
    return {};
  }
  std::suspend_always yield_value(T&& item) noexcept {
    static_assert(!MILLRACE_AGGREGATE_TEMPORARIES_UNSAFE || !std::is_aggregate_v<T> ||
                      std::is_trivially_destructible_v<T> || std::is_array_v<T>,
                  "g++ 12 destroys a co_yielded aggregate temporary twice: name the item and write "
                  "co_yield millrace::give(item), or give its type a constructor");
    yield_item(__builtin_addressof(item));
    return {};
  }
  yielded_copy yield_value(const T& item)
    requires std::is_copy_constructible_v<T>
  {
    return yielded_copy(item);
  }

  /// Asks for an item and takes it if it is yielded at once: it stays valid until the generator runs again. Null if it
  /// is not, and at the end.
  MILLRACE_ALWAYS_INLINE T* ask(promise_base& consumer) {
    const bool is_idle = begin(consumer);
    if (MILLRACE_LIKELY(stage() == nullptr)) {
      if (MILLRACE_UNLIKELY(!is_idle || !may_resume())) return nullptr;
      handle().resume();
    } else {
      resume_with_metrics(consumer, is_idle, handle());
      if (!is_idle) return nullptr;
      if (has_item() && metrics().reports(*this)) metrics().answered(*this, item_bytes_there());
    }
    return MILLRACE_LIKELY(has_item()) ? as_item(taken()) : nullptr;
  }
  /// The item that was yielded later, null at the end. Throws the exception that ended the generator.
  MILLRACE_NOINLINE T* take() {
    if (metrics().reports(*this)) metrics().answered(*this, has_item() ? item_bytes_there() : -1);
    if (has_item()) return as_item(taken());
    rethrow_if_failed();
    return nullptr;
  }

 private:
  /// Called before the item counts as taken: if byte_size() throws, the item is there for the following next().
  std::int64_t item_bytes_there() const { return static_cast<std::int64_t>(item_bytes(*as_item(item()))); }
  /// T may be const.
  static T* as_item(const void* place) noexcept { return const_cast<T*>(static_cast<const T*>(place)); }
};

/// Waits for the next item of a generator: gives a std::optional of it, or its address if `Result` is a pointer.
template <class T, class Result>
class next_awaiter {
 public:
  /// Asks at once, before the consumer suspends: in most cases the item is there then.
  MILLRACE_ALWAYS_INLINE next_awaiter(generator_promise<T>& generator, promise_base& consumer)
      : generator_(generator), item_(generator.ask(consumer)) {}
  next_awaiter(const next_awaiter&) = delete;
  next_awaiter& operator=(const next_awaiter&) = delete;
  ~next_awaiter() {
    if (MILLRACE_UNLIKELY(item_ == nullptr) && waits_) generator_.wait_no_more();
  }

  MILLRACE_ALWAYS_INLINE bool await_ready() const noexcept {
    return MILLRACE_LIKELY(item_ != nullptr) || generator_.has_answer();
  }
  template <class Consumer>
  void await_suspend(std::coroutine_handle<Consumer> consumer) {
    generator_.wait(generator_.handle(), consumer, consumer.promise());
    waits_ = true;  // not before: if that throws, another next() waits
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
  T* const item_;  // null: none was yielded at once
  bool waits_ = false;
};

/// The awaitable of next() and next_in_place().
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

/// For classes that wrap a generator. usage_error for an empty one.
template <class T>
generator_promise_base& promise_of(const async_generator<T>& generator) {
  return generator.promise();
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// Items made by a coroutine that may wait, for one consumer, a coroutine too.
///
/// Concurrency: pull. Nothing runs until next() is awaited, and then up to the following co_yield. There is one
/// consumer with one outstanding next(); all of it is on the consumer's executor, to which the first next() binds the
/// generator. While items are there without waiting, generators run as nested calls of their consumers, so the depth of
/// the stack is that of the pipeline. One hop in executor::inline_budget goes through the run queue, so that data that
/// is always there does not starve other coroutines.
///
/// Cancellation: dropping the generator destroys its coroutine where it is suspended, and everything below it. Dropping
/// a next() that waits loses nothing: the generator goes on to its co_yield, and the item is there for the following
/// next().
///
/// Lifetime: the generator owns its coroutine, in whose frame the parameters live: pass values (the compiler refuses
/// rvalue references; the object of a reference to const must outlive the generator), and no lambda with captures that
/// dies before it. `co_yield give(x)` and `co_yield std::move(x)` yield x to be moved from, `co_yield x` a copy of it.
///
/// Errors: an exception that leaves the coroutine is thrown by one next(). After that, and after the end, next() gives
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

  /// Keeps `object` as long as the coroutine: for function objects whose coroutine refers to their captures. An object
  /// kept earlier is released first.
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

  /// Like next(), without moving the item: awaitable for a T*, null at the end. The item stays in the generator, which
  /// keeps it until the next one is asked for or the generator is dropped; it may be moved from, and the generator sees
  /// changes that the consumer has made to it.
  detail::next_awaitable<T, T*> next_in_place() { return detail::next_awaitable<T, T*>(promise()); }

 private:
  friend promise_type;
  friend detail::generator_promise_base& detail::promise_of<T>(const async_generator&);

  explicit async_generator(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}

  promise_type& promise() const {
    if (MILLRACE_UNLIKELY(!handle_)) detail::misused("a generator was used that is empty: moved from, or never made");
    return handle_.promise();
  }
  /// Gives up ownership of the coroutine. (std::exchange would be one more template for every type of result.)
  std::coroutine_handle<promise_type> release() noexcept {
    const std::coroutine_handle<promise_type> given = handle_;
    handle_ = nullptr;
    return given;
  }
  void reset() noexcept {
    if (!handle_) return;
    // Released last: parameters may refer to it, too.
    const std::shared_ptr<void> kept = std::move(handle_.promise().kept_);
    release().destroy();
  }

  std::coroutine_handle<promise_type> handle_;
};

}  // namespace millrace

template <class T, class... Parameters>
struct std::coroutine_traits<millrace::async_generator<T>, Parameters...>
    : millrace::detail::coroutine_traits<millrace::async_generator<T>, Parameters...> {};

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/coro/async_generator.ipp>
#endif
