// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace millrace::detail {

/// A rate that falls where it meets its limit and then grows back, slowly around the rate at which that was and faster
/// with every second behind it: the cubic function of CUBIC with its constants (RFC 9438, 4.2 and 4.6), as the AWS SDKs
/// use it in their adaptive retry mode. Moments are in seconds, rates in requests per second.
class cubic_rate {
 public:
  /// The limit was met at `rate`; gives the rate from now on.
  double throttled(double rate, double now) noexcept;
  /// The rate at `now`, when the limit has not been met since.
  double grown(double now) const noexcept {
    const double x = now - met_at_ - window();
    return scale * x * x * x + met_at_rate_;
  }
  /// The seconds after which the rate is back where it met its limit.
  double window() const noexcept { return __builtin_cbrt(met_at_rate_ * (1 - beta) / scale); }

 private:
  static constexpr double beta = 0.7;
  static constexpr double scale = 0.4;

  double met_at_rate_ = 0;
  double met_at_ = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/detail/impl/cubic_rate.ipp>
#endif
