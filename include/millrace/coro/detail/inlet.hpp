// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>

namespace millrace::detail {

/// What a stage asks its source through for items that are there at once, outside of its own coroutine: in a loop that
/// is no coroutine (batch()) or in a shortcut of its own. Made when the source is given, and used by one stage, as the
/// source itself.
///
///     while (T* item = co_await source.next_in_place()) {
///       use(*item);
///       if (in.settle()) while (T* more = in.next_at_once()) use(*more);
///     }
template <class T>
class inlet {
 public:
  explicit inlet(async_generator<T>& source) noexcept : source_(source.handle_.promise()) {}

  /// To be called when an item has come by co_await: from now on the source's shortcut is taken, if it has one. False
  /// where next_at_once() would have nothing because an account is kept.
  bool settle() noexcept {
    if (source_.phase_ != phase::idle) return false;
    way_ = source_.shortcut_;
    return true;
  }
  /// The next item, as next_in_place() has it, if it is there with nothing else to think about. Null says nothing:
  /// co_await next() or next_in_place() must follow, and has what came of this.
  MILLRACE_ALWAYS_INLINE T* next_at_once() noexcept {
    if (MILLRACE_LIKELY(way_ != nullptr)) return spend() ? next_by_way() : nullptr;
    return source_.phase_ == phase::idle ? source_.ask_idle() : nullptr;
  }
  /// The same for a shortcut, which was paid for by whoever asked it.
  MILLRACE_ALWAYS_INLINE T* next_prepaid() noexcept {
    if (MILLRACE_LIKELY(way_ != nullptr)) return next_by_way();
    return source_.phase_ == phase::idle ? source_.ask_prepaid() : nullptr;
  }
  /// Pays for an item of the source; false when the inline budget is used up.
  bool spend() noexcept { return MILLRACE_LIKELY(source_.get_executor().spend_inline(source_.hops_)); }
  /// What that costs.
  int hops() const noexcept { return source_.hops_; }
  /// Whether the source has a shortcut, taken or not.
  bool has_shortcut() const noexcept { return source_.shortcut_ != nullptr; }

 private:
  MILLRACE_ALWAYS_INLINE T* next_by_way() noexcept {
    T* const item = way_->next();
    return MILLRACE_LIKELY(item != nullptr) ? item : source_.ask_coroutine();
  }

  generator_promise<T>& source_;
  // The source's shortcut. Used only while the source is idle, which is so from settle() until something is not there
  // at once or the coroutine asks. It is one load away, and so on from stage to stage: by way of the generator and its
  // promise it would be four loads that wait for each other, and these would be most of what an item costs.
  shortcut_base<T>* way_ = nullptr;
};

}  // namespace millrace::detail
