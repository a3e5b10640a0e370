// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/retry/request_rate.hpp>

namespace millrace::detail {

MILLRACE_INLINE void request_gate::leave() noexcept {
  --under_way_;
  while (!waiters_.empty() && under_way_ < limit()) {
    awaiter& a = waiters_.pop();
    a.grant();
    a.wake();
  }
}

MILLRACE_INLINE request_gate& request_gates::gate(const std::string& name) {
  if (gates_.size() >= 256) std::erase_if(gates_, [](const auto& named) { return named.second.idle(); });
  return gates_[name];
}

}  // namespace millrace::detail
