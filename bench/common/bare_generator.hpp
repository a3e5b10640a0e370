// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace bench {

/// The least that a generator awaited by a coroutine can be: two handles and a pointer to the item. Symmetric transfer
/// both ways; it cannot wait for anything, knows no errors, no executor and no accounts, and overflows the stack unless
/// the compiler makes tail calls (clang; g++ from -O2 on or with -foptimize-sibling-calls, without sanitizers).
template <class T>
class bare_generator {
 public:
  class promise_type {
   public:
    struct to_consumer {
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) const noexcept {
        return self.promise().consumer_;
      }
      void await_resume() const noexcept {}
    };
    bare_generator get_return_object() noexcept {
      return bare_generator(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    to_consumer final_suspend() noexcept {
      item_ = nullptr;
      return {};
    }
    to_consumer yield_value(T& item) noexcept {
      item_ = &item;
      return {};
    }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }

   private:
    friend bare_generator;
    T* item_ = nullptr;
    std::coroutine_handle<> consumer_;
  };

  class awaiter {
   public:
    explicit awaiter(std::coroutine_handle<promise_type> generator) noexcept : generator_(generator) {}
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> consumer) const noexcept {
      generator_.promise().consumer_ = consumer;
      return generator_;
    }
    T* await_resume() const noexcept { return generator_.promise().item_; }

   private:
    std::coroutine_handle<promise_type> generator_;
  };

  bare_generator(bare_generator&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  bare_generator& operator=(bare_generator&&) = delete;
  ~bare_generator() {
    if (handle_) handle_.destroy();
  }
  /// Null at the end.
  awaiter next() const noexcept { return awaiter(handle_); }

 private:
  explicit bare_generator(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

/// Runs to its end at once.
class bare_sum {
 public:
  class promise_type {
   public:
    bare_sum get_return_object() noexcept { return bare_sum(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_value(std::int64_t sum) noexcept { sum_ = sum; }
    void unhandled_exception() const noexcept { std::terminate(); }

   private:
    friend bare_sum;
    std::int64_t sum_ = 0;
  };
  bare_sum(const bare_sum&) = delete;
  bare_sum& operator=(const bare_sum&) = delete;
  ~bare_sum() { handle_.destroy(); }
  std::int64_t get() const {
    handle_.resume();
    return handle_.promise().sum_;
  }

 private:
  explicit bare_sum(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

inline bare_generator<int> bare_iota(int count) {
  for (int i = 0; i < count; ++i) {
    int item = i;
    co_yield item;
  }
}
template <class F>
bare_generator<int> bare_map(bare_generator<int> source, F f) {
  while (int* item = co_await source.next()) {
    int result = f(*item);
    co_yield result;
  }
}
template <class F>
bare_generator<int> bare_filter(bare_generator<int> source, F wanted) {
  while (int* item = co_await source.next()) {
    if (wanted(*item)) co_yield *item;
  }
}
inline bare_generator<std::vector<int>> bare_batch(bare_generator<int> source, std::size_t size) {
  for (bool ended = false; !ended;) {
    std::vector<int> items;
    items.reserve(size);
    while (items.size() < size) {
      int* const item = co_await source.next();
      if (item == nullptr) {
        ended = true;
        break;
      }
      items.push_back(*item);
    }
    if (!items.empty()) co_yield items;
  }
}
inline bare_sum bare_total(bare_generator<std::vector<int>> source) {
  std::int64_t total = 0;
  while (const std::vector<int>* items = co_await source.next()) {
    for (int x : *items) total += x;
  }
  co_return total;
}

}  // namespace bench
