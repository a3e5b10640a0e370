// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <mutex>

#include <millrace/base/clock.hpp>
#include <millrace/retry/detail/cubic_rate.hpp>

namespace millrace {

/// The client's own limit on requests per second in the "adaptive" retry mode of the AWS SDKs: off until the store asks
/// for fewer requests, then a token bucket whose rate falls to 0.7 of what was measured and grows back (cubic_rate), to
/// twice the measured rate at most. Constants, formulas and order of steps are those that botocore
/// (retries/adaptive.py, bucket.py, throttling.py), aws-sdk-go-v2, smithy-rs and smithy-typescript share. As in
/// botocore there are no debts: a request takes a token when there is one, and a waiting request follows the current
/// rate. With debts it would go on waiting for minutes after the rate has recovered (smithy-rs, pull request 4632).
///
/// Shared by the requests of a session; thread-safe. Knows no clock: callers give the present moment, which must not
/// run backwards.
class rate_limiter {
 public:
  /// Asks for the right to one request. Zero: it is given. Otherwise nothing was taken, and the caller is to ask again
  /// after that pause, of two seconds at the most; on one loop those who wait for the same token get it in the order of
  /// asking.
  duration acquire(time_point now);

  /// Tells how a request ended: whether the store asked for fewer.
  void ended(time_point now, bool throttled);

  /// Requests per second that are let through; nothing is held back before the first throttling.
  double rate() const {
    std::lock_guard lock(mutex_);
    return rate_;
  }
  /// Requests per second that were sent lately, smoothed over half seconds.
  double measured() const {
    std::lock_guard lock(mutex_);
    return measured_;
  }

 private:
  static constexpr double smooth = 0.8;
  static constexpr double tolerance = 1e-6;  // of a request: moments are rounded

  double seconds(time_point now);
  void refill(double t) {
    tokens_ = std::min(capacity_, tokens_ + (t - filled_at_) * rate_);
    filled_at_ = t;
  }
  void measure(double t);

  mutable std::mutex mutex_;
  time_point start_{};
  bool begun_ = false;
  bool enabled_ = false;
  double rate_ = 0;
  double capacity_ = 0;
  double tokens_ = 0;
  double filled_at_ = 0;
  double measured_ = 0;
  double last_bucket_ = 0;
  double requests_ = 0;
  detail::cubic_rate cubic_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/impl/rate_limiter.ipp>
#endif
