// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the tests of coroutines share: awaitables on virtual time, objects that notice wrong lifetimes, and a way to
// watch a misuse end the process.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <coroutine>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/testing/virtual_loop.hpp>

namespace millrace::test {

/// The generator with a line of its own in the stage table.
template <class T>
async_generator<T> as_stage(const char* name, async_generator<T> generator) {
  return stream<T>(std::move(generator)).named(name).generator();
}

/// Suspends for a time of the clock of the virtual loop: nothing waits. Dropping it removes the timer.
class virtual_sleep {
 public:
  explicit virtual_sleep(duration d) noexcept : duration_(d) {}

  class awaiter final : public timer_node {
   public:
    awaiter(duration d, promise_base& promise) noexcept : duration_(d), promise_(promise) {}
    ~awaiter() override { promise_.get_executor().remove_timer(*this); }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
      node_.set(handle, promise_.stage());
      promise_.get_executor().add_timer(*this, promise_.get_executor().now() + duration_);
    }
    void await_resume() const noexcept {}

   private:
    void fire() noexcept override { promise_.get_executor().post(node_); }
    duration duration_;
    promise_base& promise_;
    ready_node node_;
  };
  awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(duration_, promise); }

 private:
  duration duration_;
};

/// Lets virtual time pass inside the running coroutine, as if it computed. Never suspends.
class compute_for {
 public:
  explicit compute_for(duration d) noexcept : duration_(d) {}

  class awaiter {
   public:
    awaiter(duration d, promise_base& promise) noexcept : duration_(d), promise_(promise) {}
    bool await_ready() const noexcept {
      static_cast<testing::virtual_loop&>(promise_.get_executor()).advance(duration_);
      return true;
    }
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    void await_resume() const noexcept {}

   private:
    duration duration_;
    promise_base& promise_;
  };
  awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(duration_, promise); }

 private:
  duration duration_;
};

/// Suspends until post() is called: for tests that decide the moment themselves.
class gate {
 public:
  class awaiter {
   public:
    awaiter(gate& g, promise_base& promise) noexcept : gate_(g), promise_(promise) {}
    ~awaiter() {
      if (gate_.waiting_ == this) gate_.waiting_ = nullptr;
    }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      node_.set(handle, promise_.stage());
      gate_.waiting_ = this;
    }
    void await_resume() const noexcept {}

   private:
    friend class gate;
    gate& gate_;
    promise_base& promise_;
    ready_node node_;
  };
  class awaitable {
   public:
    explicit awaitable(gate& g) noexcept : gate_(&g) {}
    awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(*gate_, promise); }

   private:
    gate* gate_;
  };
  awaitable wait() noexcept { return awaitable(*this); }
  bool waited_for() const noexcept { return waiting_ != nullptr; }
  /// Queues the coroutine that waits.
  void post() noexcept { waiting_->promise_.get_executor().post(std::exchange(waiting_, nullptr)->node_); }

 private:
  awaiter* waiting_ = nullptr;
};

/// A value that knows its own address: a destruction, copy or move at an address where it was never constructed (a
/// temporary destroyed twice, a frame copied bytewise) counts as wrong. Also counts what lives, copies and moves.
class tracked {
 public:
  tracked() : tracked(0) {}
  explicit tracked(int v) : value(v), self_(this) { ++live; }
  tracked(const tracked& other) : value(other.check().value), self_(this) {
    ++live;
    ++copies;
  }
  tracked(tracked&& other) noexcept : value(std::exchange(other.check().value, -1)), self_(this) {
    ++live;
    ++moves;
  }
  tracked& operator=(const tracked& other) {
    value = other.check().value;
    check();
    ++copies;
    return *this;
  }
  tracked& operator=(tracked&& other) noexcept {
    value = std::exchange(other.check().value, -1);
    check();
    ++moves;
    return *this;
  }
  ~tracked() {
    check();
    self_ = nullptr;
    --live;
  }

  static void reset() { live = wrong = copies = moves = 0; }
  static bool clean() { return live == 0 && wrong == 0; }

  int value;
  static inline int live = 0;
  static inline int wrong = 0;
  static inline int copies = 0;
  static inline int moves = 0;

 private:
  tracked& check() noexcept {
    if (self_ != this) ++wrong;
    return *this;
  }
  const tracked& check() const noexcept {
    if (self_ != this) ++wrong;
    return *this;
  }
  tracked* self_;
};

/// Runs until nothing is ready and no timer is armed; the clock stands at the last timer.
inline void run_until_idle(testing::virtual_loop& loop) {
  try {
    loop.run_until([] { return false; });
  } catch (const testing::deadlock&) {
  }
}

/// Runs a number of turns, fewer where there is nothing left to do.
inline void run_turns(testing::virtual_loop& loop, std::uint64_t turns) {
  const std::uint64_t end = loop.turns() + turns;
  try {
    loop.run_until([&] { return loop.turns() == end; });
  } catch (const testing::deadlock&) {
  }
}

/// What the usage_error says that `function` throws; "" if it throws none.
template <class Function>
std::string misuse_message(Function function) {
  try {
    function();
  } catch (const usage_error& e) {
    return e.what();
  }
  return "";
}

/// What `function` prints to standard error before it aborts, in a process of its own; "survived" if it does not.
template <class Function>
std::string death_message(Function function) {
  int ends[2];
  if (::pipe(ends) != 0) return "pipe failed";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 2);
    for (int signal : {SIGABRT, SIGSEGV}) std::signal(signal, SIG_DFL);
    try {
      function();
    } catch (...) {
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char part[512];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;) said.append(part, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "survived";
  return said;
}

}  // namespace millrace::test
