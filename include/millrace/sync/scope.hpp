// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <list>
#include <type_traits>
#include <utility>

#include <millrace/coro/spawned.hpp>
#include <millrace/sync/event.hpp>

namespace millrace::inline MILLRACE_ABI {

/// How many exceptions were lost because another one had come first. with_scope() and all_of() throw the first one;
/// others may be thrown until the siblings have been dropped. Adds up over all that it is given to, which it must
/// outlive.
class further_errors {
 public:
  std::size_t count() const noexcept { return count_; }
  void add(std::size_t n = 1) noexcept { count_ += n; }

 private:
  std::size_t count_ = 0;
};

/// A set of tasks that run side by side and end together. There is one only inside with_scope(), so the join cannot be
/// forgotten:
///
///     co_await with_scope([&](scope& s) -> task<void> {
///       s.spawn(fetch_one, url1);        // callable and arguments are kept by the scope for the task's lifetime
///       s.spawn(fetch_one, url2);
///       co_return;
///     });
///
/// with_scope() returns when the body and every spawned task have ended. The body is one of them: it starts through the
/// run queue, and the first exception of any stops the others (their frames are destroyed at once) and is rethrown.
/// Exceptions that others throw until they are stopped are counted by with_scope(further, body). Dropping with_scope()
/// drops them all. Objects that several tasks share must live outside the body, which may end first.
class scope {
 public:
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;

  /// Starts `callable(args...)`, a task<void>, through the run queue. Both are stored for as long as the task lives, so
  /// lambdas with captures are safe here.
  template <class Callable, class... Args>
  void spawn(Callable callable, Args... args) {
    start(run<Callable, Args...>(*this, std::move(callable), std::move(args)...));
  }

  /// Tasks that have not ended, the body among them.
  std::size_t running() const noexcept { return running_; }

  template <class Body>
  friend task<void> with_scope(Body body);
  template <class Body>
  friend task<void> with_scope(further_errors& further, Body body);

 private:
  scope(const coroutine_context& here, further_errors* further) noexcept
      : context_(here), further_(further) {}

  ~scope() { stop(); }

  template <class Body>
  static task<void> join(further_errors* further, Body body) {
    const coroutine_context here = co_await this_context();
    scope s(here, further);
    s.start(run_body(s, body));
    while (s.running_ > 0 && !s.error_) co_await s.changed_.wait();
    s.stop();
    if (s.error_) std::rethrow_exception(s.error_);
  }
  template <class Callable, class... Args>
  static task<void> run(scope& self, Callable callable, Args... args) {
    try {
      co_await callable(std::move(args)...);
    } catch (...) {
      self.fail();
    }
    self.end();
  }
  template <class Body>
  static task<void> run_body(scope& self, Body& body) {
    try {
      co_await body(self);
    } catch (...) {
      self.fail();
    }
    self.end();
  }

  void start(task<void> t);
  void fail() noexcept;
  void end() noexcept {
    --running_;
    changed_.notify();
  }
  // Frames are destroyed outside the list: their locals may spawn, too.
  void sweep();
  void stop() noexcept;

  const coroutine_context context_;
  further_errors* further_;
  std::list<spawned<void>> tasks_;
  std::size_t running_ = 0;
  std::exception_ptr error_;
  notifier changed_;
};

/// See scope. `body(scope&)` is a task<void>.
template <class Body>
task<void> with_scope(Body body) {
  return scope::join(nullptr, std::move(body));
}
/// Like with_scope(body); `further` counts the exceptions beside the one that is thrown.
template <class Body>
task<void> with_scope(further_errors& further, Body body) {
  return scope::join(&further, std::move(body));
}

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline void scope::start(task<void> t) {
  if (tasks_.size() > 2 * running_ + 8) sweep();
  tasks_.push_back(spawned<void>(context_, std::move(t)));
  ++running_;
}

inline void scope::fail() noexcept {
  if (!error_) {
    error_ = std::current_exception();
  } else if (further_ != nullptr) {
    further_->add();
  }
}

inline void scope::sweep() {
  std::list<spawned<void>> ended;
  for (auto it = tasks_.begin(); it != tasks_.end();) {
    const auto current = it++;
    if (current->done()) ended.splice(ended.end(), tasks_, current);
  }
}

inline void scope::stop() noexcept {
  while (!tasks_.empty()) {
    std::list<spawned<void>> first;
    first.splice(first.end(), tasks_, tasks_.begin());
  }
}

}  // namespace millrace
