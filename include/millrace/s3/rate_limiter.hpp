// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <mutex>

#include <millrace/base/clock.hpp>

namespace millrace::s3 {

/// The client's own limit on requests per second in the "adaptive" retry mode of the AWS SDKs: off until the store asks
/// for fewer requests, then a token bucket whose rate falls to 0.7 of what was measured and grows back along the cubic
/// function of CUBIC (RFC 9438), to twice the measured rate at most. Shared by the requests of a session; thread-safe.
///
/// Knows no clock: callers give the present moment, which must not run backwards.
class rate_limiter {
 public:
  /// Takes the right to one request; gives the pause until it may be sent. Requests are served in the order of calls.
  duration acquire(time_point now) {
    std::lock_guard lock(mutex_);
    const double t = seconds(now);
    if (!enabled_) return duration(0);
    refill(t);
    tokens_ -= 1;
    return tokens_ >= 0 ? duration(0) : duration(static_cast<duration::rep>(-tokens_ / rate_ * 1e9));
  }

  /// Tells how a request ended: whether the store asked for fewer.
  void ended(time_point now, bool throttled) {
    std::lock_guard lock(mutex_);
    const double t = seconds(now);
    measure(t);
    double wanted;
    if (throttled) {
      last_max_ = enabled_ ? std::min(measured_, rate_) : measured_;
      last_throttle_ = t;
      enabled_ = true;
      wanted = last_max_ * beta;
    } else {
      const double window = __builtin_cbrt(last_max_ * (1 - beta) / scale);
      const double x = t - last_throttle_ - window;
      wanted = scale * x * x * x + last_max_;
    }
    refill(t);
    rate_ = std::max(std::min(wanted, 2 * measured_), 0.5);
    capacity_ = std::max(rate_, 1.0);
    tokens_ = std::min(tokens_, capacity_);
  }

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
  static constexpr double beta = 0.7;
  static constexpr double scale = 0.4;
  static constexpr double smooth = 0.8;

  double seconds(time_point now) {
    if (!begun_) {
      begun_ = true;
      start_ = now;
    }
    return static_cast<double>((now - start_).count()) * 1e-9;
  }
  void refill(double t) {
    tokens_ = std::min(capacity_, tokens_ + (t - filled_at_) * rate_);
    filled_at_ = t;
  }
  void measure(double t) {
    const double bucket = __builtin_floor(t * 2) / 2;
    requests_ += 1;
    if (bucket <= last_bucket_) return;
    const double present = requests_ / (bucket - last_bucket_);
    measured_ = present * smooth + measured_ * (1 - smooth);
    requests_ = 0;
    last_bucket_ = bucket;
  }

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
  double last_max_ = 0;
  double last_throttle_ = 0;
};

}  // namespace millrace::s3
