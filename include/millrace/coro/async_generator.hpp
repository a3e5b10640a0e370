// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/owned.hpp>
#include <millrace/coro/item_bytes.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/stage_bounds.hpp>

namespace millrace {

/// `co_yield give(x);` hands a named object over by move. Works for every type under every supported compiler; in a
/// template that nvcc compiles, x must be of a type that depends on a parameter (`class Item = sample` does).
template <class T>
class given {
 public:
  explicit given(T& object) noexcept : object_(&object) {}
  T& get() const noexcept { return *object_; }

 private:
  T* object_;
};
template <class T>
given<T> give(T& object) noexcept {
  return given<T>(object);
}

namespace detail {

template <class T>
class generator_promise : public promise_base {
 public:
  std::coroutine_handle<generator_promise> get_return_object() noexcept { return frame_of(*this); }
  std::suspend_always initial_suspend() const noexcept { return {}; }

  /// Suspends at a yield or at the end, and wakes the consumer if it is waiting.
  class handing_over {
   public:
    handing_over() noexcept = default;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<generator_promise> handle) const noexcept {
      generator_promise& p = handle.promise();
      p.running_ = false;
      p.resume_continuation();
    }
    void await_resume() const noexcept {}
  };
  /// The same for an item that the generator keeps: the consumer gets a copy. The address is taken only when the
  /// awaiter has come to rest in the frame: a trivially copyable one may be returned in registers.
  class handing_copy {
   public:
    explicit handing_copy(const T& item) : copy_(item) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<generator_promise> handle) noexcept {
      handle.promise().item_ = &copy_;
      handing_over().await_suspend(handle);
    }
    void await_resume() const noexcept {}

   private:
    T copy_;
  };

  handing_over yield_value(given<T> item) noexcept {
    item_ = &item.get();
    return handing_over();
  }
  handing_over yield_value(T&& item) noexcept {
    static_assert(!MILLRACE_AGGREGATE_TEMPORARIES_UNSAFE || !std::is_aggregate_v<T> ||
                      std::is_trivially_destructible_v<T> || std::is_array_v<T>,
                  "g++ 12 destroys a co_yielded aggregate temporary twice: name the item and write "
                  "co_yield millrace::give(item), or give its type a constructor");
    item_ = &item;
    return handing_over();
  }
  handing_copy yield_value(const T& item)
    requires std::is_copy_constructible_v<T>
  {
    return handing_copy(item);
  }
  handing_over final_suspend() noexcept {
    ended_ = true;
    item_ = nullptr;
    return handing_over();
  }
  void return_void() const noexcept {}

  bool has_result() const noexcept { return item_ != nullptr || ended_; }
  MILLRACE_ALWAYS_INLINE std::optional<T> take() {
    if (MILLRACE_UNLIKELY(item_ == nullptr)) {
      rethrow_if_failed();
      return std::nullopt;
    }
    T* const item = item_;
    item_ = nullptr;
    return std::optional<T>(std::move(*item));
  }
  const T* peek() const noexcept { return item_; }

  bool running_ = false;  // asked, and has neither yielded nor ended yet
  bool ended_ = false;
  const char* name_ = nullptr;  // a stage of its own in the account; null: part of its consumer's stage
  std::int64_t asked_ns_ = 0;
  std::int64_t yielded_ns_ = 0;
  owned<generator_extras> extras_;

 private:
  T* item_ = nullptr;
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
  async_generator&& keep(std::shared_ptr<void> object) && {
    extras().kept.push_back(std::move(object));
    return std::move(*this);
  }

  class next_awaiter {
   public:
    MILLRACE_ALWAYS_INLINE next_awaiter(std::coroutine_handle<promise_type> generator, promise_base& consumer)
        : generator_(generator), consumer_(consumer) {
      if (MILLRACE_UNLIKELY(!generator_.promise().bound())) bind();
    }
    next_awaiter(const next_awaiter&) = delete;
    next_awaiter& operator=(const next_awaiter&) = delete;
    ~next_awaiter() {
      if (waiting_) generator_.promise().set_continuation(nullptr, nullptr);
    }

    MILLRACE_ALWAYS_INLINE bool await_ready() {
      promise_type& p = generator_.promise();
      if (p.has_result()) return true;  // also after the end
      if (p.running_) return false;     // an earlier next() was dropped while it waited
      p.running_ = true;
      executor& ex = p.get_executor();
      if (!ex.spend_inline()) {
        queued_ = true;
        return false;
      }
      if (MILLRACE_LIKELY(p.stage() == nullptr)) {
        generator_.resume();
        return p.has_result();
      }
      return resume_on_account(p, ex);
    }
    void await_suspend(std::coroutine_handle<> consumer) noexcept {
      promise_type& p = generator_.promise();
      MILLRACE_ASSERT(!p.awaited(), "a generator has one consumer and one outstanding next()");
      MILLRACE_ASSERT(&p.get_executor() == &consumer_.get_executor(), "a generator was moved to another executor");
      p.set_continuation(consumer, consumer_.stage());
      waiting_ = true;
      if (queued_) p.post_self(generator_);
      if (own_stage(p) && starved_since_ == 0) {
        starved_since_ = p.get_executor().now_ns();
        if (queued_) ask(p, starved_since_);
      }
    }
    MILLRACE_ALWAYS_INLINE std::optional<T> await_resume() {
      promise_type& p = generator_.promise();
      if (MILLRACE_UNLIKELY(p.stage() != nullptr) && p.asked_ns_ != 0) settle(p);
      waiting_ = false;
      return p.take();
    }

   private:
    bool own_stage(const promise_type& p) const noexcept {
      return p.stage() != nullptr && p.stage() != consumer_.stage();
    }

    void ask(promise_type& p, std::int64_t t) noexcept {
      p.asked_ns_ = t;
      if (p.yielded_ns_ != 0) stage_record::add(p.stage()->blocked_ns, t - p.yielded_ns_);
    }
    MILLRACE_NOINLINE void bind() {
      stage_record* stage = consumer_.stage();
      promise_type& p = generator_.promise();
      if (stage != nullptr && p.name_ != nullptr) stage = stage->owner->find_or_add(p.name_, stage);
      p.bind(consumer_.get_executor(), stage);
    }
    MILLRACE_NOINLINE bool resume_on_account(promise_type& p, executor& ex) {
      stage_record* const before = ex.enter(p.stage());
      if (own_stage(p)) {
        starved_since_ = ex.entered_ns();
        ask(p, starved_since_);
      }
      generator_.resume();
      ex.enter(before);
      return p.has_result();
    }
    MILLRACE_NOINLINE void settle(promise_type& p) {
      if (!own_stage(p)) return;
      stage_record& s = *p.stage();
      const std::int64_t t = waiting_ ? p.get_executor().now_ns() : p.get_executor().entered_ns();
      stage_record::add(s.asked_ns, t - p.asked_ns_);
      p.asked_ns_ = 0;
      p.yielded_ns_ = t;
      if (starved_since_ != 0 && consumer_.stage() != nullptr) {
        stage_record::add(consumer_.stage()->starved_ns, t - starved_since_);
      }
      if (const T* item = p.peek()) {
        stage_record::add(s.items, 1);
        stage_record::add(s.bytes, static_cast<std::int64_t>(detail::item_bytes(*item)));
      }
    }

    std::coroutine_handle<promise_type> generator_;
    promise_base& consumer_;
    std::int64_t starved_since_ = 0;
    bool queued_ = false;
    bool waiting_ = false;
  };

  class next_awaitable {
   public:
    explicit next_awaitable(std::coroutine_handle<promise_type> generator) noexcept : generator_(generator) {}
    next_awaiter awaited_by(promise_base& consumer) const { return next_awaiter(generator_, consumer); }

   private:
    std::coroutine_handle<promise_type> generator_;
  };

  /// Awaitable for the next item: std::optional<T>, nullopt at the end.
  next_awaitable next() noexcept {
    MILLRACE_ASSERT(handle_ != nullptr, "next() on an empty generator");
    return next_awaitable(handle_);
  }

 private:
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

  std::coroutine_handle<promise_type> handle_;
};

}  // namespace millrace
