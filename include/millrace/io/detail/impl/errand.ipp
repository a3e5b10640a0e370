// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/io/detail/errand.hpp>

namespace millrace::detail {

MILLRACE_INLINE void errand::send(executor& home, executor& away, ready_node& sender) noexcept {
  home_ = &home;
  away_ = &away;
  waiter_ = &sender;
  home.operation_started();
  away.post_remote(depart_);
}

MILLRACE_INLINE void errand::abandon(const std::shared_ptr<away_count>& away) noexcept {
  waiter_ = nullptr;
  if (arrived_ || home_ == nullptr) {
    delete this;
  } else {
    recalling_ = true;
    dropped_by_ = away;
    dropped_by_->left();
    away_->post_remote(recall_);
  }
}

MILLRACE_INLINE void errand::on_depart() noexcept {
  away_->operation_started();
  guest_list* const all = away_->find_service<guest_list>();
  if (all != nullptr && all->failure()) return fail(all->failure());
  if (all != nullptr) all->add(*this);
  try {
    start(*away_);
  } catch (...) {
    failed();
    go_home();
  }
}

MILLRACE_INLINE void errand::go_home() noexcept {
  left_ = true;
  unlink();
  destroy();
  executor& away = *away_;
  home_->post_remote(arrive_);
  away.operation_finished();
}

MILLRACE_INLINE void errand::finish() noexcept {
  home_->operation_finished();
  if (waiter_ != nullptr) {
    home_->post(*waiter_);
  } else {
    const std::shared_ptr<away_count> away = std::move(dropped_by_);
    delete this;
    away->came_home();
  }
}

}  // namespace millrace::detail
