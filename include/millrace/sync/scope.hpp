// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <list>
#include <type_traits>
#include <utility>

#include <millrace/coro/started.hpp>
#include <millrace/sync/signal.hpp>

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
/// with_scope() returns when the body and every spawned task have ended. The first exception stops the others (their
/// frames are destroyed) and is rethrown. Dropping with_scope() drops them all.
class scope {
 public:
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;

  /// Starts `callable(args...)`, a task<void>, through the run queue. Both are stored for as long as the task lives, so
  /// lambdas with captures are safe here.
  template <class Callable, class... Args>
  void spawn(Callable callable, Args... args) {
    sweep();
    ++running_;
    tasks_.emplace_back();
    task<void> t = run<Callable, Args...>(*this, std::move(callable), std::move(args)...);
    tasks_.back() = started<void>(executor_, std::move(t), stage_);
  }

  /// Spawned tasks that have not ended.
  std::size_t running() const noexcept { return running_; }

  template <class Body>
  friend task<void> with_scope(Body body);

 private:
  scope(executor& ex, stage_record* stage) noexcept : executor_(ex), stage_(stage) {}

  template <class Callable, class... Args>
  static task<void> run(scope& self, Callable callable, Args... args) {
    try {
      co_await callable(std::move(args)...);
    } catch (...) {
      if (!self.error_) self.error_ = std::current_exception();
    }
    --self.running_;
    self.changed_.notify();
  }
  void sweep() {
    for (auto it = tasks_.begin(); it != tasks_.end();) it = it->done() ? tasks_.erase(it) : std::next(it);
  }

  executor& executor_;
  stage_record* stage_;
  std::list<started<void>> tasks_;
  std::size_t running_ = 0;
  std::exception_ptr error_;
  signal changed_;
};

/// See scope. `body(scope&)` is a task<void>.
template <class Body>
task<void> with_scope(Body body) {
  executor& ex = co_await this_executor();
  stage_record* stage = co_await this_stage();
  scope s(ex, stage);
  task<void> main = body(s);
  co_await std::move(main);
  while (s.running_ > 0 && !s.error_) co_await s.changed_.wait();
  s.tasks_.clear();
  if (s.error_) std::rethrow_exception(s.error_);
}

}  // namespace millrace
