// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <coroutine>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/io/detail/file_job.hpp>

namespace millrace::detail {

MILLRACE_INLINE void file_job::start(event_loop& loop, ready_node& waiter) noexcept {
  loop_ = &loop;
  waiter_ = &waiter;
  loop.start(*this);
}

MILLRACE_INLINE void file_job::abandon() noexcept {
  if (loop_ == nullptr || done_) {
    delete this;
    return;
  }
  waiter_ = nullptr;
  loop_->cancel(*this);  // deletes the job here or later
}

MILLRACE_INLINE void file_job::complete(std::int64_t result) noexcept {
  result_ = result;
  done_ = true;
  if (request().what == file_request::kind::open && result >= 0) opened_ = owned_fd(static_cast<int>(result));
  if (request().what == file_request::kind::close && result != -ECANCELED) descriptor->release();
  if (waiter_ != nullptr) {
    loop_->post(*waiter_);
  } else {
    delete this;
  }
}

MILLRACE_INLINE void file_wait::awaiter::await_suspend(std::coroutine_handle<> handle) noexcept {
  suspend(handle);
  waiting_ = true;
  job_->start(loop_, node());
}

}  // namespace millrace::detail
