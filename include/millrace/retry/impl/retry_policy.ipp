// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <millrace/base/compiler.hpp>
#include <millrace/retry/retry_policy.hpp>

namespace millrace {

MILLRACE_INLINE std::optional<duration> retry_policy::after_failure(const failed_attempt& failed,
                                                                    double jitter) noexcept {
  switch (failed.what) {
    case retry_class::permanent:
      return std::nullopt;
    case retry_class::skew:
    case retry_class::region:
    case retry_class::expired: {
      const unsigned bit = 1u << static_cast<unsigned>(failed.what);
      if ((mended_ & bit) != 0) return std::nullopt;
      mended_ |= bit;
      return duration(0);
    }
    case retry_class::transient:
    case retry_class::throttling:
      break;
  }
  if (attempts_ >= options_.max_attempts) return std::nullopt;
  const bool throttled = failed.what == retry_class::throttling;
  const int cost = throttled          ? options_.throttling_cost
                   : failed.timed_out ? options_.timeout_cost
                                      : options_.retry_cost;
  if (!quota_->take(cost)) return std::nullopt;
  last_cost_ = cost;
  const duration base = throttled ? options_.throttling_base : options_.base;
  const int doublings = std::min(attempts_ - 1, 30);
  ++attempts_;
  const double longest = static_cast<double>(options_.max_pause.count());
  const double full = std::min(longest, static_cast<double>(base.count()) * static_cast<double>(1u << doublings));
  const auto pause = duration(static_cast<std::int64_t>(full * std::clamp(jitter, 0.0, 1.0)));
  if (!failed.hint) return pause;
  return std::clamp(*failed.hint, pause, pause + options_.max_over_hint);
}

}  // namespace millrace
