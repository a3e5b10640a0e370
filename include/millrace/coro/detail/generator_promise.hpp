// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <millrace/base/owned.hpp>
#include <millrace/coro/give.hpp>
#include <millrace/coro/item_bytes.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/stage_bounds.hpp>

namespace millrace {

namespace detail {

/// What a generator is doing, as bits. No char: for all the compiler knows, any store changes what a char is.
namespace phase {
using type = unsigned;
inline constexpr type idle = 0;
/// Asked, and what comes of it is not taken yet. Nothing else: there is only the item to think about, as long as nobody
/// waits, nothing has ended and no account is kept. So items pass at a few nanoseconds each.
inline constexpr type asked = 1;
inline constexpr type item = 2;       ///< has an item for its consumer
inline constexpr type ended = 4;      ///< has ended, well or with an error
inline constexpr type unbound = 8;    ///< never asked: has no executor yet
inline constexpr type recorded = 16;  ///< works for a stage whose account is kept
inline constexpr type queued = 32;    ///< asked when the inline budget was spent
inline constexpr type awaited = 64;   ///< its consumer has suspended
}  // namespace phase

/// What does not depend on the type of the items.
class generator_promise_base : public promise_base {
 public:
  std::suspend_always initial_suspend() const noexcept { return {}; }
  std::suspend_always final_suspend() noexcept {
    come(phase::ended);
    return {};
  }
  void return_void() const noexcept {}

  /// Whether an item was yielded that nobody has taken yet.
  bool has_item() const noexcept { return has_plain_item() || (phase_ & phase::item) != 0; }
  /// The same for one that was yielded with nothing else to think about.
  bool has_plain_item() const noexcept { return item_ != nullptr; }
  /// Whether another item, or the end, has come.
  bool has_come() const noexcept { return (phase_ & (phase::item | phase::ended)) != 0; }

  /// The first step of a next() that is the first of all, or on account.
  MILLRACE_NOINLINE void prepare(promise_base& consumer) {
    if (!bound()) {
      stage_record* stage = consumer.stage();
      if (stage != nullptr && name_ != nullptr) stage = stage->owner->find_or_add(name_, stage);
      bind(consumer.get_executor(), stage);
      phase_ = stage == nullptr ? phase::idle : phase::recorded;
    }
    consumer_stage_ = consumer.stage();
    starved_since_ = 0;
  }

  /// await_ready() of a next() when the generator is not simply idle.
  MILLRACE_NOINLINE bool ask_otherwise(std::coroutine_handle<> self) {
    if (has_plain_item() || has_come()) return true;  // also after the end
    if ((phase_ & phase::asked) != 0) return false;   // an earlier next() was dropped while it waited
    phase_ |= phase::asked;
    executor& ex = get_executor();
    if (!ex.spend_inline(hops_)) {
      phase_ |= phase::queued;
      return false;
    }
    stage_record* const before = ex.enter(stage());
    if (own_stage()) {
      starved_since_ = ex.entered_ns();
      account_ask(starved_since_);
    }
    self.resume();
    ex.enter(before);
    return has_come();
  }

  /// await_suspend() of a next().
  MILLRACE_NOINLINE void wait(std::coroutine_handle<> self, std::coroutine_handle<> consumer,
                              promise_base& context) noexcept {
    MILLRACE_ASSERT(!awaited(), "a generator has one consumer and one outstanding next()");
    MILLRACE_ASSERT(&get_executor() == &context.get_executor(), "a generator was moved to another executor");
    set_continuation(consumer, context.stage());
    phase_ |= phase::awaited;
    const bool queue = (phase_ & phase::queued) != 0;
    if (queue) {
      phase_ &= ~phase::queued;
      post_self(self);
    }
    if (own_stage() && starved_since_ == 0) {
      starved_since_ = get_executor().now_ns();
      if (queue) account_ask(starved_since_);
    }
  }

  /// The next() that waits is dropped.
  void wait_no_more() noexcept {
    set_continuation(nullptr, nullptr);
    phase_ &= ~phase::awaited;
  }

  phase::type phase_ = phase::unbound;
  int hops_ = 1;  // what asking costs of the inline budget: one, and as much as the source where a shortcut leads there
  const char* name_ = nullptr;  // a stage of its own in the account; null: part of its consumer's stage
  owned<generator_extras> extras_;

 protected:
  // What was yielded. Two places, so that one look at the first tells the consumer that there is an item, and that
  // there is nothing else to do.
  const void* item_ = nullptr;        // while the generator was `asked` and nothing else; null when it is taken
  const void* other_item_ = nullptr;  // otherwise: `phase::item` says whether it is there
  /// An item or the end has come: wakes a consumer that waits.
  MILLRACE_NOINLINE void come(phase::type what) noexcept {
    phase_ = (phase_ & ~phase::awaited) | what;
    resume_continuation();
  }

  bool asked_on_account() const noexcept { return asked_ns_ != 0 && own_stage(); }
  /// Something came: accounts for the wait. Of an item, the bytes; less than 0 at the end.
  void account_result(bool waited, std::int64_t item_bytes) {
    stage_record& s = *stage();
    const std::int64_t t = waited ? get_executor().now_ns() : get_executor().entered_ns();
    stage_record::add(s.asked_ns, t - asked_ns_);
    asked_ns_ = 0;
    yielded_ns_ = t;
    if (starved_since_ != 0 && consumer_stage_ != nullptr) {
      stage_record::add(consumer_stage_->starved_ns, t - starved_since_);
    }
    if (item_bytes >= 0) {
      stage_record::add(s.items, 1);
      stage_record::add(s.bytes, item_bytes);
    }
  }

 private:
  bool own_stage() const noexcept { return stage() != nullptr && stage() != consumer_stage_; }
  void account_ask(std::int64_t t) noexcept {
    asked_ns_ = t;
    if (yielded_ns_ != 0) stage_record::add(stage()->blocked_ns, t - yielded_ns_);
  }

  stage_record* consumer_stage_ = nullptr;
  std::int64_t asked_ns_ = 0;
  std::int64_t yielded_ns_ = 0;
  std::int64_t starved_since_ = 0;
};

/// What makes a generator's items past its coroutine (see shortcut.hpp).
template <class T>
class shortcut_base {
 public:
  T* next() noexcept { return next_of_(*this); }

 protected:
  explicit shortcut_base(T* (*next_of)(shortcut_base&) noexcept) noexcept : next_of_(next_of) {}
  ~shortcut_base() = default;

 private:
  T* (*next_of_)(shortcut_base&) noexcept;
};

template <class T>
class generator_promise : public generator_promise_base {
 public:
  std::coroutine_handle<generator_promise> get_return_object() noexcept { return frame_of(*this); }

  /// An item that the generator keeps: the consumer gets a copy. Its address is taken only when the awaiter has come to
  /// rest in the frame: a trivially copyable one may be returned in registers.
  class handing_copy {
   public:
    explicit handing_copy(const T& item) : copy_(item) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<generator_promise> handle) noexcept { handle.promise().hand_over(copy_); }
    void await_resume() const noexcept {}

   private:
    T copy_;
  };

  // These wake the consumer before the generator has suspended; it is resumed after that (executor::transfer()).
  std::suspend_always yield_value(given<T> item) noexcept {
    hand_over(hand<T>::object(item));
    return {};
  }
  std::suspend_always yield_value(T&& item) noexcept {
    static_assert(!MILLRACE_AGGREGATE_TEMPORARIES_UNSAFE || !std::is_aggregate_v<T> ||
                      std::is_trivially_destructible_v<T> || std::is_array_v<T>,
                  "g++ 12 destroys a co_yielded aggregate temporary twice: name the item and write "
                  "co_yield millrace::give(item), or give its type a constructor");
    hand_over(item);
    return {};
  }
  handing_copy yield_value(const T& item)
    requires std::is_copy_constructible_v<T>
  {
    return handing_copy(item);
  }

  /// Asks the idle generator and takes the item if it comes at once, with nothing else to think about; else null.
  MILLRACE_ALWAYS_INLINE T* ask_idle() noexcept {
    if (MILLRACE_LIKELY(get_executor().spend_inline(hops_))) return ask_prepaid();
    phase_ = phase::asked | phase::queued;
    return nullptr;
  }
  /// The same when this hop was paid for with another.
  MILLRACE_ALWAYS_INLINE T* ask_prepaid() noexcept {
    if (shortcut_ != nullptr) {
      T* const item = shortcut_->next();
      return MILLRACE_LIKELY(item != nullptr) ? item : ask_coroutine();
    }
    return resume_for_item();
  }
  /// The same when the shortcut had nothing.
  MILLRACE_NOINLINE T* ask_coroutine() noexcept {
    MILLRACE_ASSERT(phase_ == phase::idle, "a generator was asked for an item while it made one");
    return resume_for_item();
  }
  /// Whatever came; null at the end. Throws what ended the generator. `waited`: whether the next() had to wait.
  MILLRACE_NOINLINE T* take(bool waited) {
    if (has_plain_item()) {
      T* const plain = as_item(item_);
      taken_plain();
      return plain;
    }
    T* const item = (phase_ & phase::item) != 0 ? as_item(other_item_) : nullptr;
    if (asked_on_account()) {
      account_result(waited, item != nullptr ? static_cast<std::int64_t>(detail::item_bytes(*item)) : -1);
    }
    phase_ &= phase::recorded | phase::ended;  // last: where byte_size() throws, the item is there for the next next()
    if (item == nullptr) rethrow_if_failed();
    return item;
  }

  shortcut_base<T>* shortcut_ = nullptr;

 private:
  MILLRACE_ALWAYS_INLINE T* resume_for_item() noexcept {
    phase_ = phase::asked;
    std::coroutine_handle<generator_promise>::from_promise(*this).resume();
    T* const item = as_item(item_);
    if (MILLRACE_LIKELY(item != nullptr)) taken_plain();
    return item;
  }
  void taken_plain() noexcept {
    item_ = nullptr;
    phase_ = phase::idle;
  }
  /// T may be const.
  static T* as_item(const void* place) noexcept { return const_cast<T*>(static_cast<const T*>(place)); }
  MILLRACE_ALWAYS_INLINE void hand_over(T& item) noexcept {
    const void* const place = __builtin_addressof(item);  // T may have an operator& of its own
    if (MILLRACE_LIKELY(phase_ == phase::asked)) {
      item_ = place;
    } else {
      other_item_ = place;
      come(phase::item);
    }
  }
};

}  // namespace detail

}  // namespace millrace
