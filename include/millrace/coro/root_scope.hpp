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

  explicit root_scope(executor& ex) noexcept : executor_(ex), reaper_(*this) {}

  /// Runs `t` to its end. What it throws is counted and dropped: clean-up has nobody to report to.
  template <class = void>
  void adopt(task<void> t) {
    tasks_.push_back(started<void>(executor_, run(std::move(t), *this), nullptr));
    executor_.background_started();
  }

  /// Clean-ups that ended with an exception so far.
  std::size_t failures() const noexcept { return failures_; }

 private:
  // A task cannot free its own frame: this message, which it sends at its end, is run between coroutines.
  class reaper final : public remote_node {
   public:
    explicit reaper(root_scope& scope) noexcept : scope_(scope) {}
    void send() noexcept {
      if (!std::exchange(sent_, true)) scope_.executor_.post_remote(*this);
    }

   private:
    void run() noexcept override {
      sent_ = false;
      scope_.sweep();
    }
    root_scope& scope_;
    bool sent_ = false;
  };

  template <class = void>
  static task<void> run(task<void> t, root_scope& self) {
    try {
      co_await std::move(t);
    } catch (...) {
      ++self.failures_;
    }
    self.reaper_.send();
  }
  void sweep() noexcept {
    std::list<started<void>> ended;  // destroyed last: destructors may adopt
    for (auto it = tasks_.begin(); it != tasks_.end();) {
      const auto current = it++;
      if (current->done()) ended.splice(ended.end(), tasks_, current);
    }
    for (std::size_t n = ended.size(); n > 0; --n) executor_.background_finished();
  }

  executor& executor_;
  reaper reaper_;
  std::list<started<void>> tasks_;
  std::size_t failures_ = 0;
};

}  // namespace millrace
