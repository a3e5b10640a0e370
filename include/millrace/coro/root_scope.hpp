// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/spawned.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The scope of tasks that must outlive the code that started them. Clean-up when a stage is dropped (aborting an
/// upload, say): a destructor cannot wait, so it gives a task to the executor's root scope, which runs it;
/// executor::drain() and the executor's destructor wait for it. And work that is shared (fetching credentials): drain()
/// waits `patience` for that, then drops it. No task is detached.
class root_scope final : public executor_service, private timer_node {
 public:
  /// Time that drain() waits for tasks of adopt_droppable(), on the executor's clock.
  static constexpr duration patience = duration(50'000'000);

  /// The root scope of `ex`.
  static root_scope& of(executor& ex) {
    return ex.service<root_scope>(ex);
  }

  explicit root_scope(executor& ex) noexcept : executor_(ex), reaper_(*this) {}
  MILLRACE_INLINE ~root_scope() override;

  /// Runs `t` to its end. Exceptions are counted and dropped: clean-up has no caller to report them to.
  MILLRACE_COROUTINE void adopt(task<void> t);

  /// Like adopt(), for work that can be started again elsewhere: `t` is dropped, finished or not, once the executor has
  /// had nothing else to wait for during `patience`.
  MILLRACE_COROUTINE void adopt_droppable(task<void> t);

  executor& get_executor() const noexcept { return executor_; }
  /// Tasks that ended with an exception so far.
  std::size_t failures() const noexcept { return failures_; }
  /// The number of tasks checked so far in order to free those that had ended: the cost of it.
  std::size_t looks() const noexcept { return looks_; }

 private:
  struct adopted {
    adopted(spawned<void> t, bool d) noexcept : running(std::move(t)), droppable(d) {}
    spawned<void> running;
    bool droppable;
    std::unique_ptr<adopted> next;  // of those that are freed together
  };

  // A task cannot free its own frame, nor a timer another coroutine's: this message is run between coroutines.
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

  MILLRACE_COROUTINE void add(task<void> t, bool droppable);
  MILLRACE_COROUTINE static task<void> run(task<void> t, root_scope& self);

  MILLRACE_INLINE bool linger() noexcept override;
  void fire() noexcept override {
    impatient_ = true;
    reaper_.send();
  }

  void sweep() noexcept;

  executor& executor_;
  reaper reaper_;
  std::vector<std::unique_ptr<adopted>> tasks_;
  std::size_t droppable_ = 0;
  std::size_t failures_ = 0;
  std::size_t looks_ = 0;
  bool lingering_ = false;  // in a drain, counted as background
  bool impatient_ = false;  // `patience` has passed
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/coro/root_scope.ipp>
#endif
