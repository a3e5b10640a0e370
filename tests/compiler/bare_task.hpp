// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The smallest coroutines that show what a compiler does to temporaries and frames: none of the library's guards, so
// that the compiler alone is on trial.

#include <sys/wait.h>
#include <unistd.h>

#include <coroutine>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include "tests/coro/support.hpp"

namespace millrace::test::bare {

/// A lazy task; run() drives it from the top by hand.
template <class T>
struct task {
  struct promise_type {
    promise_type() noexcept {}
    task get_return_object() { return task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    template <class U>
    void return_value(U&& v) {
      value.emplace(std::forward<U>(v));
    }
    void unhandled_exception() { std::abort(); }
    std::optional<T> value;
  };
  explicit task(std::coroutine_handle<promise_type> h) noexcept : handle(h) {}
  task(task&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  ~task() {
    if (handle) handle.destroy();
  }
  bool await_ready() {
    handle.resume();  // nothing here ever suspends half-way
    return true;
  }
  void await_suspend(std::coroutine_handle<>) noexcept {}
  T await_resume() { return std::move(*handle.promise().value); }

  std::coroutine_handle<promise_type> handle;
};

template <class T>
T run(task<T> t) {
  t.handle.resume();
  return std::move(*t.handle.promise().value);
}

/// A generator that is asked by hand.
template <class T>
struct generator {
  struct promise_type {
    promise_type() noexcept {}
    generator get_return_object() { return generator(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept {
      item = nullptr;
      return {};
    }
    std::suspend_always yield_value(T&& v) noexcept {
      item = &v;
      return {};
    }
    void return_void() noexcept {}
    void unhandled_exception() { std::abort(); }
    T* item = nullptr;
  };
  explicit generator(std::coroutine_handle<promise_type> h) noexcept : handle(h) {}
  generator(generator&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  ~generator() {
    if (handle) handle.destroy();
  }
  T* next() {
    handle.resume();
    return handle.promise().item;
  }
  std::coroutine_handle<promise_type> handle;
};

/// Runs `check` in a process of its own: true when it returned true and no object was constructed or destroyed wrongly.
inline bool compiled_correctly(bool (*check)()) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    for (int signal : {SIGABRT, SIGSEGV, SIGILL, SIGBUS}) std::signal(signal, SIG_DFL);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(2);
    tracked::reset();
    ::_exit(check() && tracked::clean() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace millrace::test::bare
