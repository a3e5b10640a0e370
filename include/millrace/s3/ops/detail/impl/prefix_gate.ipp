// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/s3/ops/detail/prefix_gate.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE bool prefix_gate::awaiter::await_ready() noexcept {
  if (!gate_.waiters_.empty() || gate_.under_way_ >= gate_.limit_.limit()) return false;
  grant();
  return true;
}

MILLRACE_INLINE void prefix_gate::leave() noexcept {
  --under_way_;
  while (!waiters_.empty() && under_way_ < limit_.limit()) {
    awaiter& a = waiters_.pop();
    a.grant();
    a.wake();
  }
}

}  // namespace millrace::s3::detail
