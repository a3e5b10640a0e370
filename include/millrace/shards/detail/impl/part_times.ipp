// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/shards/detail/part_times.hpp>

namespace millrace::detail {

MILLRACE_INLINE std::optional<duration> part_times::patience(std::size_t length) {
  std::lock_guard lock(mutex_);
  allowed_ = std::min(allowed_ + extra_, most_allowed);
  const sizes& s = of(length);
  if (s.count < least) return std::nullopt;
  const duration p95 = s.percentile_95();
  const auto slow = duration(static_cast<duration::rep>(static_cast<double>(p95.count()) * factor_));
  return std::max(slow, soonest_);
}

MILLRACE_INLINE bool part_times::take() {
  std::lock_guard lock(mutex_);
  if (allowed_ < 1) return false;
  allowed_ -= 1;
  return true;
}

MILLRACE_INLINE void part_times::came(std::size_t length, duration took) {
  std::lock_guard lock(mutex_);
  sizes& s = of(length);
  s.times[s.next++ % kept] = took;
  if (s.count < kept) ++s.count;
}

MILLRACE_INLINE duration part_times::sizes::percentile_95() const noexcept {
  const std::size_t from_top = count - count * 95 / 100;
  duration longest[kept - kept * 95 / 100] = {};  // the longest first
  for (std::size_t i = 0; i < count; ++i) {
    duration d = times[i];
    for (std::size_t k = 0; k < from_top; ++k) {
      if (d > longest[k]) std::swap(d, longest[k]);
    }
  }
  return longest[from_top - 1];
}

MILLRACE_INLINE part_times::sizes& part_times::of(std::size_t length) {
  std::size_t doublings = 0;
  while (length > 1) {
    length >>= 1;
    ++doublings;
  }
  if (by_size_[doublings] == nullptr) by_size_[doublings] = std::make_unique<sizes>();
  return *by_size_[doublings];
}

}  // namespace millrace::detail
