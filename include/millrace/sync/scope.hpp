// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <list>
#include <type_traits>
#include <utility>

#include <millrace/coro/spawned.hpp>
#include <millrace/sync/further_errors.hpp>
#include <millrace/sync/notifier.hpp>

namespace millrace {

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
/// What others throw until they are stopped is counted by with_scope(further, body). Dropping with_scope() drops them
/// all. What several tasks share must live outside the body, which may end first.
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
  scope(executor& ex, stage_record* stage, further_errors* further) noexcept
      : executor_(ex), stage_(stage), further_(further) {}

  ~scope() { stop(); }

  template <class Body>
  static task<void> join(further_errors* further, Body body) {
    executor& ex = co_await this_executor();
    stage_record* stage = co_await this_stage();
    scope s(ex, stage, further);
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
  // Frames are destroyed outside the list: what they hold may spawn, too.
  void sweep();
  void stop() noexcept;

  executor& executor_;
  stage_record* stage_;
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
/// The same; `further` counts the exceptions beside the one that is thrown.
template <class Body>
task<void> with_scope(further_errors& further, Body body) {
  return scope::join(&further, std::move(body));
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/sync/impl/scope.ipp>
#endif
