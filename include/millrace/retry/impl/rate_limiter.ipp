// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <mutex>

#include <millrace/base/compiler.hpp>
#include <millrace/retry/rate_limiter.hpp>

namespace millrace {

MILLRACE_INLINE duration rate_limiter::acquire(time_point now) {
  std::lock_guard lock(mutex_);
  const double t = seconds(now);
  if (!enabled_) return duration(0);
  refill(t);
  if (tokens_ < 1 - tolerance) {
    return duration(static_cast<duration::rep>(__builtin_ceil((1 - tokens_) / rate_ * 1e9)));
  }
  tokens_ = std::max(tokens_ - 1, 0.0);
  return duration(0);
}

MILLRACE_INLINE void rate_limiter::ended(time_point now, bool throttled) {
  std::lock_guard lock(mutex_);
  const double t = seconds(now);
  measure(t);
  double wanted;
  if (throttled) {
    wanted = cubic_.throttled(enabled_ ? std::min(measured_, rate_) : measured_, t);
    enabled_ = true;
  } else {
    wanted = cubic_.grown(t);
  }
  refill(t);
  rate_ = std::max(std::min(wanted, 2 * measured_), 0.5);
  capacity_ = std::max(rate_, 1.0);
  tokens_ = std::min(tokens_, capacity_);
}

MILLRACE_INLINE double rate_limiter::seconds(time_point now) {
  if (!begun_) {
    begun_ = true;
    start_ = now;
  }
  return static_cast<double>((now - start_).count()) * 1e-9;
}

MILLRACE_INLINE void rate_limiter::measure(double t) {
  const double bucket = __builtin_floor(t * 2) / 2;
  requests_ += 1;
  if (bucket <= last_bucket_) return;
  const double present = requests_ / (bucket - last_bucket_);
  measured_ = present * smooth + measured_ * (1 - smooth);
  requests_ = 0;
  last_bucket_ = bucket;
}

}  // namespace millrace
