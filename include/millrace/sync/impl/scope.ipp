// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <list>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/sync/scope.hpp>

namespace millrace {

MILLRACE_INLINE void scope::start(task<void> t) {
  if (tasks_.size() > 2 * running_ + 8) sweep();
  tasks_.push_back(spawned<void>(executor_, std::move(t), stage_));
  ++running_;
}

MILLRACE_INLINE void scope::fail() noexcept {
  if (!error_) {
    error_ = std::current_exception();
  } else if (further_ != nullptr) {
    further_->add();
  }
}

MILLRACE_INLINE void scope::sweep() {
  std::list<spawned<void>> ended;
  for (auto it = tasks_.begin(); it != tasks_.end();) {
    const auto current = it++;
    if (current->done()) ended.splice(ended.end(), tasks_, current);
  }
}

MILLRACE_INLINE void scope::stop() noexcept {
  while (!tasks_.empty()) {
    std::list<spawned<void>> first;
    first.splice(first.end(), tasks_, tasks_.begin());
  }
}

}  // namespace millrace
