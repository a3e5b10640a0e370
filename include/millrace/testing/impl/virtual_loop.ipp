// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/deadlock.hpp>
#include <millrace/testing/virtual_loop.hpp>

namespace millrace::testing {

MILLRACE_INLINE std::uint64_t virtual_loop::seed_from_environment(std::uint64_t fallback,
                                                                  const environment& variables) {
  const std::optional<std::string> set = variables.get("MILLRACE_SEED");
  if (!set) return fallback;
  std::fprintf(stderr, "MILLRACE_SEED=%s\n", set->c_str());
  return std::strtoull(set->c_str(), nullptr, 0);
}

MILLRACE_INLINE void virtual_loop::poll(bool block, std::optional<time_point> deadline) {
  if (!block || !inbox_empty()) return;
  if (operations() > 0) {  // real time first, or a virtual time-out could overtake a real job
    std::unique_lock lock(mutex_);
    if (!woken_ && !condition_.wait_for(lock, std::chrono::seconds(10), [this] { return woken_; })) {
      throw deadlock(seed_.behind("an announced operation did not report back within 10 s"));
    }
    woken_ = false;
    return;
  }
  if (!deadline) throw deadlock(seed_.behind("nothing is ready, no timer is armed, and somebody still waits"));
  now_ = std::max<std::int64_t>(now_, deadline->time_since_epoch().count());
}

MILLRACE_INLINE void virtual_loop::wake() noexcept {
  std::lock_guard lock(mutex_);
  woken_ = true;
  condition_.notify_one();
}

}  // namespace millrace::testing
