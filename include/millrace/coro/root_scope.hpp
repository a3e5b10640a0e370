// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <millrace/coro/spawned.hpp>

namespace millrace {

/// Where tasks go that must outlive who started them. Clean-up when a stage is dropped (aborting an upload, say): a
/// destructor cannot wait, so it hands a task to the executor's root scope, which runs it; executor::drain() and the
/// executor's end wait for it. And work for everybody (fetching credentials): drain() has little patience with that.
/// Nothing is ever detached and forgotten.
template <class = void>
class basic_root_scope final : public executor_service, private timer_node {
 public:
  /// How long drain() waits for what adopt_droppable() took, on the executor's clock.
  static constexpr duration patience = duration(50'000'000);

  /// The root scope of `ex`.
  static basic_root_scope& of(executor& ex) {
    return ex.service<basic_root_scope>([&ex] { return std::make_unique<basic_root_scope>(ex); });
  }

  explicit basic_root_scope(executor& ex) noexcept : executor_(ex), reaper_(*this) {}
  ~basic_root_scope() override {
    executor_.remove_timer(*this);
    while (!tasks_.empty()) {
      const std::unique_ptr<adopted> last = std::move(tasks_.back());  // destroyed outside: destructors may adopt
      tasks_.pop_back();
    }
  }

  /// Runs `t` to its end. What it throws is counted and dropped: clean-up has nobody to report to.
  void adopt(task<void> t) {
    add(std::move(t), false);
    executor_.background_started();
  }

  /// The same for what can be begun again elsewhere: when the executor has nothing else to wait for, and `patience` has
  /// passed since, `t` is dropped where it stands.
  void adopt_droppable(task<void> t) {
    add(std::move(t), true);
    ++droppable_;
  }

  /// Tasks that ended with an exception so far.
  std::size_t failures() const noexcept { return failures_; }
  /// How often it has looked at a task so far, to let those go that had ended: what that costs.
  std::size_t looks() const noexcept { return looks_; }

 private:
  struct adopted {
    adopted(spawned<void> t, bool d) noexcept : running(std::move(t)), droppable(d) {}
    spawned<void> running;
    bool droppable;
    std::unique_ptr<adopted> next;  // of those that are let go together
  };

  // A task cannot free its own frame, nor a timer another coroutine's: this message is run between coroutines.
  class reaper final : public remote_node {
   public:
    explicit reaper(basic_root_scope& scope) noexcept : scope_(scope) {}
    void send() noexcept {
      if (!std::exchange(sent_, true)) scope_.executor_.post_remote(*this);
    }

   private:
    void run() noexcept override {
      sent_ = false;
      scope_.sweep();
    }
    basic_root_scope& scope_;
    bool sent_ = false;
  };

  void add(task<void> t, bool droppable) {
    tasks_.push_back(std::make_unique<adopted>(spawned<void>(executor_, run(std::move(t), *this), nullptr), droppable));
  }
  static task<void> run(task<void> t, basic_root_scope& self) {
    try {
      co_await std::move(t);
    } catch (...) {
      ++self.failures_;
    }
    self.reaper_.send();
  }

  bool linger() noexcept override {
    if (droppable_ == 0) return false;
    if (!std::exchange(lingering_, true)) {
      executor_.background_started();
      try {
        executor_.add_timer(*this, executor_.now() + patience);
      } catch (...) {
        fire();
      }
    }
    return true;
  }
  void fire() noexcept override {
    impatient_ = true;
    reaper_.send();
  }

  void sweep() noexcept {
    std::unique_ptr<adopted> ended;  // destroyed last: destructors may adopt
    std::size_t kept = 0;
    looks_ += tasks_.size();
    for (std::unique_ptr<adopted>& current : tasks_) {
      if (!current->running.done() && !(current->droppable && impatient_)) {
        if (&tasks_[kept] != &current) tasks_[kept] = std::move(current);
        ++kept;
        continue;
      }
      if (current->droppable) {
        --droppable_;
      } else {
        executor_.background_finished();
      }
      current->next = std::move(ended);
      ended = std::move(current);
    }
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(kept), tasks_.end());
    if (droppable_ == 0 && std::exchange(lingering_, false)) {
      impatient_ = false;
      executor_.remove_timer(*this);
      executor_.background_finished();
    }
    while (ended != nullptr) ended = std::move(ended->next);
  }

  executor& executor_;
  reaper reaper_;
  std::vector<std::unique_ptr<adopted>> tasks_;
  std::size_t droppable_ = 0;
  std::size_t failures_ = 0;
  std::size_t looks_ = 0;
  bool lingering_ = false;  // in a drain, counted as background
  bool impatient_ = false;  // whose patience is at its end
};
using root_scope = basic_root_scope<>;

}  // namespace millrace
