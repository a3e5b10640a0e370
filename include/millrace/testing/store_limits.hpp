// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <millrace/base/clock.hpp>
#include <millrace/base/rng.hpp>

/// \file
/// How a store is limited: the same for a store_model on virtual time and for the s3_server.

namespace millrace::inline MILLRACE_ABI::testing {

/// Times from a request to the first byte of its answer, by four points of their distribution. Between these the
/// logarithm of the time is linear in the logarithm of the share of requests that take longer. The defaults are those
/// of an object store: one request of 1,000 takes a second.
class latency_curve {
 public:
  duration median = std::chrono::milliseconds(20);
  duration p90 = std::chrono::milliseconds(50);
  duration p99 = std::chrono::milliseconds(200);
  duration p999 = std::chrono::seconds(1);

  /// The time of one request: at least half of the median, and at most 2.5 times p999.
  duration draw(rng& random) const noexcept {
    const auto in = [](duration d) { return static_cast<double>(d.count()); };
    const double times[] = {in(median) / 2, in(median), in(p90), in(p99), in(p999), 2.5 * in(p999)};
    static constexpr double tails[] = {0, .69, 2.30, 4.61, 6.91, 9.21};  // -log of the share that takes longer
    const double tail = std::min(-std::log(1 - random.uniform()), 9.2);
    std::size_t i = 0;
    while (tail > tails[i + 1]) ++i;
    const double share = (tail - tails[i]) / (tails[i + 1] - tails[i]);
    return duration(static_cast<std::int64_t>(times[i] * std::pow(times[i + 1] / times[i], share)));
  }
};

/// How many requests a prefix takes.
struct request_limit {
  double each_second = 0;  ///< 0: no limit
  double burst = 0.1;      ///< how many seconds of these a full bucket of tokens holds; one request at least
  /// A prefix that refuses requests for so long, at least one in each second, is split in two that take `each_second`
  /// each: their keys together are then refused half as soon, and may be split again. 0: never.
  duration split_after{0};
};

/// The bucket of tokens of one prefix: it fills at the rate of its limit, and a request that finds it empty is refused
/// and takes none.
class request_bucket {
 public:
  /// True if it takes a request at `now`, which is no earlier than that of the call before.
  bool take(const request_limit& limit, time_point now) noexcept {
    if (limit.each_second <= 0) return true;
    const double rate = parts_ * limit.each_second;
    const double most = std::max(1.0, rate * limit.burst);
    const double seconds = 1e-9 * static_cast<double>((now - filled_).count());
    tokens_ = filled_ == time_point() ? most : std::min(most, tokens_ + rate * seconds);
    filled_ = now;
    if (tokens_ >= 1) {
      tokens_ -= 1;
      return true;
    }
    if (refused_ == time_point() || now - refused_ > std::chrono::seconds(1)) refusing_since_ = now;
    refused_ = now;
    if (limit.split_after.count() > 0 && now - refusing_since_ >= limit.split_after) {
      parts_ *= 2;
      refusing_since_ = now;
    }
    return false;
  }
  /// Prefixes that it has been split into.
  int parts() const noexcept { return parts_; }

 private:
  double tokens_ = 0;
  int parts_ = 1;
  time_point filled_{};
  time_point refused_{};
  time_point refusing_since_{};
};

/// The prefix of a key that S3 counts requests by: its first component with the slash, "" if it has none.
inline std::string_view counted_prefix(std::string_view key) noexcept {
  const std::size_t slash = key.find('/');
  return slash == std::string_view::npos ? std::string_view() : key.substr(0, slash + 1);
}

}  // namespace millrace::inline MILLRACE_ABI::testing
