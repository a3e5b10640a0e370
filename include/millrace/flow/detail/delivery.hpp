// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>

#include <millrace/coro/async_generator.hpp>

namespace millrace::detail {

/// Tells a generator, and the tasks that work for it, whether the item that it yielded last has been taken: as soon as
/// the consumer runs, unless the consumer dropped its next() before the item came.
template <class T>
class delivery {
 public:
  explicit delivery(generator_promise<T>& promise) noexcept : promise_(&promise) {}
  bool pending() const noexcept { return promise_->has_item(); }

 private:
  generator_promise<T>* promise_;
};

/// `delivery<T> yielded = co_await this_delivery<T>();` inside an async_generator<T>.
template <class T>
class this_delivery {
 public:
  this_delivery() noexcept = default;
  class awaiter {
   public:
    explicit awaiter(generator_promise<T>& promise) noexcept : promise_(promise) {}
    bool await_ready() const noexcept { return true; }
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    delivery<T> await_resume() const noexcept { return delivery<T>(promise_); }

   private:
    generator_promise<T>& promise_;
  };
  awaiter awaited_by(promise_base& promise) const noexcept {
    return awaiter(static_cast<generator_promise<T>&>(promise));
  }
};

}  // namespace millrace::detail
