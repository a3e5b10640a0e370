// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>
#include <exception>
#include <utility>

#include <millrace/coro/detail/inlet.hpp>

namespace millrace::detail {

/// A way past a generator's coroutine, for stages that neither wait nor hold items back: as long as everything is there
/// at once, nothing ends or fails and no account is kept, items are made by `T* Way::make()`, an ordinary function, and
/// the coroutine stays where it yielded last. All the rest is the coroutine's, which is then resumed there.
///
///     some_shortcut way(source, f);     // derived from shortcut<T, some_shortcut>, lives in the coroutine's frame
///     co_await way.opened();            // first of all
///     while (S* item = co_await source.next_in_place()) {
///       T& made = way.make_of(*item);   // calls settle(inlet)
///       co_yield give(made);            // the only one
///       way.come_back();                // throws what make() threw
///     }
///
/// make() returns an item, which stays until make() is called again or the coroutine goes on, or null, having left
/// nothing to do but what the coroutine does anyway. It asks a source by inlet::next_prepaid() and nothing else.
template <class T, class Way>
class shortcut : public shortcut_base<T> {
 public:
  shortcut(const shortcut&) = delete;
  shortcut& operator=(const shortcut&) = delete;

  shortcut& opened() noexcept { return *this; }
  class awaiter {
   public:
    bool await_ready() const noexcept { return true; }
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    void await_resume() const noexcept {}
  };
  awaiter awaited_by(promise_base& generator) noexcept {
    generator_ = &static_cast<generator_promise<T>&>(generator);
    generator_->shortcut_ = this;
    return awaiter();
  }

  template <class S>
  void settle(inlet<S>& source) noexcept {
    if (source.settle()) generator_->hops_ = 1 + source.hops();
  }
  void come_back() {
    if (MILLRACE_UNLIKELY(static_cast<bool>(error_))) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 protected:
  shortcut() noexcept : shortcut_base<T>(&shortcut::next_of) {}
  ~shortcut() = default;

 private:
  static T* next_of(shortcut_base<T>& way) noexcept {
    shortcut& self = static_cast<shortcut&>(way);
    try {
      return static_cast<Way&>(self).make();
    } catch (...) {
      self.keep_error();
      return nullptr;
    }
  }
  MILLRACE_NOINLINE void keep_error() noexcept { error_ = std::current_exception(); }

  generator_promise<T>* generator_ = nullptr;
  std::exception_ptr error_;
};

}  // namespace millrace::detail
