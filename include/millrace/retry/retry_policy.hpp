// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <millrace/base/clock.hpp>
#include <millrace/retry/retry_class.hpp>
#include <millrace/retry/retry_options.hpp>
#include <millrace/retry/retry_quota.hpp>

namespace millrace {

/// How one attempt failed.
struct failed_attempt {
  retry_class what = retry_class::permanent;
  bool timed_out = false;                       ///< no answer within the deadline
  std::optional<duration> hint = std::nullopt;  ///< the pause that the store asked for
};

/// Decides, for one request, whether to try again and after which pause: exponential backoff with full jitter within
/// the shared quota.
///
/// What can be mended (the region, the clock, the credentials) is tried again at once, each of the three once per
/// request, outside quota and count. Neither a clock nor random numbers of its own; nothing waits here.
class retry_policy {
 public:
  /// `quota` must outlive the policy.
  retry_policy(const retry_options& options, retry_quota& quota) noexcept : options_(options), quota_(&quota) {}

  /// The pause before the next attempt, or nothing: give up and report this failure. `jitter` is uniform in [0, 1].
  template <class = void>
  std::optional<duration> after_failure(const failed_attempt& failed, double jitter) noexcept {
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

  /// To be called when an attempt failed that brought a good part of the answer: the count of attempts starts again.
  /// The quota is not refilled.
  void made_progress() noexcept { attempts_ = 1; }

  /// To be called once when the request has succeeded: returns what the last retry took, or one token when there was
  /// none, to the quota.
  void after_success() noexcept {
    quota_->give(last_cost_ == 0 ? 1 : last_cost_);
    last_cost_ = 0;
  }

  /// Attempts begun so far that counted, the first one included.
  int attempts() const noexcept { return attempts_; }

 private:
  retry_options options_;
  retry_quota* quota_;
  int attempts_ = 1;
  int last_cost_ = 0;
  unsigned mended_ = 0;
};

}  // namespace millrace
