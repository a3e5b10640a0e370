// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <utility>

#include <millrace/coro/started.hpp>

namespace millrace {

/// Where asynchronous clean-up goes when the stage that needs it is dropped (aborting an upload, say): a destructor
/// cannot wait, so it hands a task to the executor's root scope, which runs it; executor::drain() and the executor's
/// end wait for it. Nothing is ever detached and forgotten.
class root_scope final : public executor_service {
 public:
  /// The root scope of `ex`.
  static root_scope& of(executor& ex) {
    return ex.service<root_scope>([&ex] { return std::make_unique<root_scope>(ex); });
  }

  explicit root_scope(executor& ex) noexcept : executor_(ex) {}

  /// Runs `t` to its end. What it throws is counted and dropped: clean-up has nobody to report to.
  void adopt(task<void> t) {
    tasks_.emplace_back();
    const auto here = std::prev(tasks_.end());
    executor_.background_started();
    *here = started<void>(executor_, run(std::move(t), *this), nullptr);
    sweep(here);
  }

  /// Clean-ups that ended with an exception so far.
  std::size_t failures() const noexcept { return failures_; }

 private:
  static task<void> run(task<void> t, root_scope& self) {
    try {
      co_await std::move(t);
    } catch (...) {
      ++self.failures_;
    }
    self.executor_.background_finished();
  }
  // A task cannot free its own frame: ended ones go when the next one comes.
  void sweep(std::list<started<void>>::iterator keep) {
    for (auto it = tasks_.begin(); it != tasks_.end();)
      it = it != keep && it->done() ? tasks_.erase(it) : std::next(it);
  }

  executor& executor_;
  std::list<started<void>> tasks_;
  std::size_t failures_ = 0;
};

}  // namespace millrace
