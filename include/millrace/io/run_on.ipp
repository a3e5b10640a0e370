// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/io/run_on.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void remote_task::send(executor& home, executor& away, ready_node& sender) noexcept {
  home_ = &home;
  away_ = &away;
  waiter_ = &sender;
  home.operation_started();
  away.post_remote(start_);
}

MILLRACE_INLINE void remote_task::drop(const std::shared_ptr<wait_group>& abandoned) noexcept {
  waiter_ = nullptr;
  if (has_result_ || home_ == nullptr) {
    delete this;
  } else {
    cancelling_ = true;
    abandoned_ = abandoned;
    abandoned_->add();
    away_->post_remote(cancel_);
  }
}

MILLRACE_INLINE void remote_task::on_start() noexcept {
  away_->operation_started();
  failure_listeners* const all = away_->find_service<failure_listeners>();
  if (all != nullptr && all->failure()) return fail(all->failure());
  if (all != nullptr) all->add(*this);
  try {
    start_task(*away_);
  } catch (...) {
    failed();
    return_result();
  }
}

MILLRACE_INLINE void remote_task::return_result() noexcept {
  returned_ = true;
  unlink();
  destroy_task();
  executor& away = *away_;
  home_->post_remote(result_message_);
  away.operation_finished();
}

MILLRACE_INLINE void remote_task::complete() noexcept {
  home_->operation_finished();
  if (waiter_ != nullptr) {
    home_->post(*waiter_);
  } else {
    const std::shared_ptr<wait_group> abandoned = std::move(abandoned_);
    delete this;
    abandoned->done();
  }
}

}  // namespace millrace::detail
