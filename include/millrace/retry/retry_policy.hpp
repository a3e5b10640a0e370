// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  std::optional<duration> after_failure(const failed_attempt& failed, double jitter) noexcept;

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

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/impl/retry_policy.ipp>
#endif
