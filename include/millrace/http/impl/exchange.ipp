// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>

#include <millrace/base/compiler.hpp>
#include <millrace/http/exchange.hpp>

namespace millrace::http {

MILLRACE_INLINE void exchange::waiting::await_suspend(std::coroutine_handle<> handle) noexcept {
  suspend(handle);
  transfer_.set_waiter(&node(), for_head_, stage());
  suspended_ = true;
}

MILLRACE_INLINE const response_head& exchange::head_awaiter::await_resume() {
  this->resumed();
  if (!this->transfer_.head_complete()) this->transfer_.rethrow_if_failed();
  return this->transfer_.head();
}

}  // namespace millrace::http
