// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/give.hpp>
#include <millrace/coro/item_bytes.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace::detail {

/// What a generator is doing. Whether it has an item for its consumer, and whether that waits, is told by pointers.
enum class generator_phase {
  fresh,   ///< never asked: has no executor yet
  idle,    ///< nothing is asked of it
  asked,   ///< it runs or waits, or has an item that nobody has taken yet
  queued,  ///< asked when the inline budget was used up: it will run in the next turn
  ended,   ///< well or with an error
};

/// What a generator does that does not depend on the type of its items.
///
/// A hop: the consumer calls ask(), which resumes the coroutine as a nested call. The coroutine yields, which puts down
/// where the item lies and suspends; so ask() returns with the item, and the consumer has not suspended. Where none
/// comes at once, the consumer suspends in wait(), a yield or the end resumes it later, and it has the item from
/// take().
///
/// Account: a generator with a stage of its own switches the executor's account to it and back around ask(), and
/// counts the item. In a turn in which the account's clock stands still that would add nothing but zeros to its times:
/// there an item that comes at once is only counted.
class generator_promise_base : public promise_base {
 public:
  std::suspend_always initial_suspend() const noexcept { return {}; }
  std::suspend_always final_suspend() noexcept {
    phase_ = generator_phase::ended;
    resume_continuation();
    return {};
  }
  void return_void() const noexcept {}

  /// Whether an item was yielded that nobody has taken yet.
  bool has_item() const noexcept { return item_ != nullptr; }

  /// Whether something has come: an item, or the end.
  bool has_come() const noexcept { return item_ != nullptr || phase_ == generator_phase::ended; }

  /// The consumer has suspended: it is resumed when something comes.
  void wait(std::coroutine_handle<> self, std::coroutine_handle<> consumer, promise_base& context);
  /// The next() that waits is dropped.
  void wait_no_more() noexcept {
    set_continuation(nullptr, nullptr);
    if (starves_) account_wait_over(get_executor().charge_current());
  }

  void call(const char* name) noexcept {
    name_ = name;
    named_ns_ = monotonic_ns();
  }

  const char* name_ = nullptr;  // a stage of its own in the account; null: part of its consumer's stage
  const char* advice_ = nullptr;
  std::int64_t named_ns_ = 0;  // when it got the name
  std::shared_ptr<void> kept_;  // outlives the coroutine: see async_generator::keep()

 protected:
  ~generator_promise_base() {
    if (asked_ || handed_) stage()->dropped(get_executor().charge_current(), asked_, handed_);
  }

  MILLRACE_ALWAYS_INLINE void hand_over(const void* item) noexcept {
    item_ = item;
    resume_continuation();
  }
  /// A next() of `consumer` begins. Whether the generator is idle: if not, an earlier next() was dropped, or it has
  /// ended.
  MILLRACE_ALWAYS_INLINE bool begin(promise_base& consumer) {
    return MILLRACE_LIKELY(phase_ == generator_phase::idle) || begin_unusual(consumer);
  }
  /// Whether the idle coroutine is to be resumed now: there is inline budget left.
  MILLRACE_ALWAYS_INLINE bool may_resume() noexcept {
    phase_ = generator_phase::asked;
    if (MILLRACE_LIKELY(get_executor().spend_inline())) return true;
    phase_ = generator_phase::queued;
    return false;
  }
  MILLRACE_ALWAYS_INLINE const void* taken() noexcept {
    phase_ = generator_phase::idle;
    return std::exchange(item_, nullptr);
  }
  const void* item() const noexcept { return item_; }

  /// Whether the stage keeps an account of its own, beside its consumer's.
  bool on_account() const noexcept { return stage() != nullptr && stage() != consumer_stage_; }
  /// What ask() does while accounts are kept: resumes the coroutine where it `is_idle` and there is inline budget left.
  MILLRACE_NOINLINE void ask_on_account(promise_base& consumer, bool is_idle, std::coroutine_handle<> self) {
    executor& ex = get_executor();
    if (MILLRACE_UNLIKELY(&ex != &consumer.get_executor())) misused(other_executor);
    consumer_stage_ = consumer.stage();
    if (!is_idle || !may_resume()) return;
    if (!on_account()) return self.resume();
    if (!ex.account_stands() || !handed_) return resume_on_account(self);
    self.resume();
    if (MILLRACE_UNLIKELY(!has_item())) account_ask(ex.charged_ns());
  }
  /// What was asked on account has come: an item of so many bytes, or (less than 0) the end.
  MILLRACE_ALWAYS_INLINE void account_result(std::int64_t bytes) noexcept {
    if (asked_) {
      account_answer(bytes);
    } else if (bytes >= 0) {
      stage()->counted(bytes);  // it came at once while the clock stood still
    }                           // else the end is told again
  }

 private:
  bool begin_unusual(promise_base& consumer);
  void check_consumer(promise_base& consumer) const;
  MILLRACE_NOINLINE void account_answer(std::int64_t bytes) noexcept {
    const std::int64_t t = get_executor().charged_ns();
    asked_ = false;
    handed_ = bytes >= 0;
    stage()->answered(t, bytes);
    if (starves_) account_wait_over(t);
  }
  MILLRACE_NOINLINE void resume_on_account(std::coroutine_handle<> self) {
    executor& ex = get_executor();
    stage_record* const before = ex.enter(stage());
    account_ask(ex.charged_ns());
    self.resume();
    ex.enter(before);
  }
  void account_ask(std::int64_t t) noexcept {
    account_wait(t);
    stage()->asked(t, handed_);
    asked_ = true;
    handed_ = false;
  }
  void account_wait(std::int64_t t) noexcept {
    if (consumer_stage_ == nullptr) return;
    consumer_stage_->wait_began(t);
    starves_ = true;
  }
  void account_wait_over(std::int64_t t) noexcept {
    consumer_stage_->wait_ended(t);
    starves_ = false;
  }

  static constexpr const char* other_executor =
      "a generator was moved to another executor: from its first next() on it belongs to one";

  generator_phase phase_ = generator_phase::fresh;
  const void* item_ = nullptr;  // the item that was yielded; null when it is taken
  // of a stage with an account
  stage_record* consumer_stage_ = nullptr;
  bool asked_ = false;    // on account, and not answered
  bool handed_ = false;   // an item, since when nobody has asked
  bool starves_ = false;  // the consumer's stage, until this answers
};

template <class T>
class generator_promise : public generator_promise_base {
 public:
  std::coroutine_handle<generator_promise> get_return_object() noexcept { return frame_of(*this); }
  std::coroutine_handle<> handle() noexcept { return std::coroutine_handle<generator_promise>::from_promise(*this); }

  /// An item that the generator keeps: the consumer gets a copy. Its address is taken only when the awaiter has come to
  /// rest in the frame: a trivially copyable one may be returned in registers.
  class handing_copy {
   public:
    explicit handing_copy(const T& item) : copy_(item) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<generator_promise> handle) noexcept {
      handle.promise().hand_over(__builtin_addressof(copy_));
    }
    void await_resume() const noexcept {}

   private:
    T copy_;
  };

  // These wake the consumer before the generator has suspended; it is resumed after that (executor::transfer()).
  // T may have an operator& of its own.
  std::suspend_always yield_value(given<T> item) noexcept {
    hand_over(__builtin_addressof(given_object<T>::at(item)));
    return {};
  }
  std::suspend_always yield_value(T&& item) noexcept {
    static_assert(!MILLRACE_AGGREGATE_TEMPORARIES_UNSAFE || !std::is_aggregate_v<T> ||
                      std::is_trivially_destructible_v<T> || std::is_array_v<T>,
                  "g++ 12 destroys a co_yielded aggregate temporary twice: name the item and write "
                  "co_yield millrace::give(item), or give its type a constructor");
    hand_over(__builtin_addressof(item));
    return {};
  }
  handing_copy yield_value(const T& item)
    requires std::is_copy_constructible_v<T>
  {
    return handing_copy(item);
  }

  /// Asks for an item and takes it if it comes at once: it lies there until the generator runs again. Null where it
  /// does not, or the end has come.
  MILLRACE_ALWAYS_INLINE T* ask(promise_base& consumer) {
    const bool is_idle = begin(consumer);
    if (MILLRACE_LIKELY(stage() == nullptr)) {
      if (MILLRACE_UNLIKELY(!is_idle || !may_resume())) return nullptr;
      handle().resume();
    } else {
      ask_on_account(consumer, is_idle, handle());
      if (!is_idle) return nullptr;
      if (has_item() && on_account()) account_result(item_bytes_there());
    }
    return MILLRACE_LIKELY(has_item()) ? as_item(taken()) : nullptr;
  }
  /// The item that came later, null at the end. Throws what ended the generator.
  MILLRACE_NOINLINE T* take() {
    if (on_account()) account_result(has_item() ? item_bytes_there() : -1);
    if (has_item()) return as_item(taken());
    rethrow_if_failed();
    return nullptr;
  }

 private:
  /// Asked before the item counts as taken: where byte_size() throws, the item is there for the next next().
  std::int64_t item_bytes_there() const { return static_cast<std::int64_t>(item_bytes(*as_item(item()))); }
  /// T may be const.
  static T* as_item(const void* place) noexcept { return const_cast<T*>(static_cast<const T*>(place)); }
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/coro/detail/impl/generator_promise.ipp>
#endif
