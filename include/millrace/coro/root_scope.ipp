// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/root_scope.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE root_scope::~root_scope() {
  executor_.remove_timer(*this);
  while (!tasks_.empty()) {
    const std::unique_ptr<adopted> last = std::move(tasks_.back());  // destroyed outside: destructors may adopt
    tasks_.pop_back();
  }
}

MILLRACE_COROUTINE_BODY void root_scope::adopt(task<void> t) {
  add(std::move(t), false);
  executor_.background_started();
}

MILLRACE_COROUTINE_BODY void root_scope::adopt_droppable(task<void> t) {
  add(std::move(t), true);
  ++droppable_;
}

MILLRACE_COROUTINE_BODY void root_scope::add(task<void> t, bool droppable) {
  tasks_.push_back(std::make_unique<adopted>(spawned<void>(executor_, run(std::move(t), *this)), droppable));
}

MILLRACE_COROUTINE_BODY task<void> root_scope::run(task<void> t, root_scope& self) {
  try {
    co_await std::move(t);
  } catch (...) {
    ++self.failures_;
  }
  self.reaper_.send();
}

MILLRACE_INLINE bool root_scope::linger() noexcept {
  if (droppable_ == 0) return false;
  if (!std::exchange(lingering_, true)) {
    executor_.background_started();
    executor_.add_timer(*this, detail::added(executor_.now(), patience));
  }
  return true;
}

MILLRACE_INLINE void root_scope::sweep() noexcept {
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

}  // namespace millrace
