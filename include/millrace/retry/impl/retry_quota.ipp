// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>

#include <millrace/base/compiler.hpp>
#include <millrace/retry/retry_quota.hpp>

namespace millrace {

MILLRACE_INLINE bool retry_quota::take(int cost) noexcept {
  int have = tokens_.load(std::memory_order_relaxed);
  do {
    if (have < cost) return false;
  } while (!tokens_.compare_exchange_weak(have, have - cost, std::memory_order_relaxed));
  return true;
}

MILLRACE_INLINE void retry_quota::give(int tokens) noexcept {
  int have = tokens_.load(std::memory_order_relaxed);
  int then;
  do {
    then = std::min(capacity_, have + tokens);
  } while (!tokens_.compare_exchange_weak(have, then, std::memory_order_relaxed));
}

}  // namespace millrace
