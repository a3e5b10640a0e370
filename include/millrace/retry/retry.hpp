// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string_view>

#include <millrace/base/clock.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/message.hpp>
#include <millrace/retry/retry_options.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The treatment of a failed request.
enum class retry_class {
  permanent,   ///< the same request will fail again
  transient,   ///< try again after a short pause
  throttling,  ///< the store asks for fewer requests: try again after a longer pause
  skew,        ///< our clock is off: sign again with the server's Date, once
  region,      ///< the bucket lives elsewhere: sign and send for its region, once
  expired,     ///< the credentials have expired: fetch new ones and sign again, once
};

/// The class of an answer, by its HTTP status (0: none arrived, whatever the transport's reason) and S3's error code
/// (empty: none). Statuses that http::may_pass() are transient; a failed precondition (412), a range that is not there
/// (416) and everything unknown are permanent.
retry_class classify(int status, std::string_view code) noexcept;

/// The class of a transport failure: there was no answer, or no valid one.
retry_class classify(http::failure kind) noexcept;

/// The value of the header x-amz-retry-after: milliseconds. Nothing when it is not a plain number.
std::optional<duration> parse_retry_after(std::string_view text) noexcept;

/// The pause that an answer asks for: x-amz-retry-after, else Retry-After with seconds or a date (RFC 9110, 10.2.3).
/// `now` is the store's clock in unix seconds. Nothing when there is neither or it cannot be read.
std::optional<duration> retry_hint(const http::headers& fields, std::int64_t now);

/// Tokens that all requests of a client share: retries take some, successes return some.
///
/// When most requests fail the quota is used up and requests fail at once: a client does not multiply the load on a
/// store that is down. Safe to use from several threads.
class retry_quota {
 public:
  explicit retry_quota(int capacity = 500) noexcept : retry_quota(capacity, capacity) {}
  /// Starts with `tokens` of `capacity`.
  retry_quota(int capacity, int tokens) noexcept : capacity_(capacity), tokens_(std::clamp(tokens, 0, capacity)) {}

  /// Takes `cost` tokens, or none and returns false when there are fewer.
  bool take(int cost) noexcept;

  /// Puts tokens back, up to the capacity.
  void give(int tokens) noexcept;

  int tokens() const noexcept { return tokens_.load(std::memory_order_relaxed); }

 private:
  const int capacity_;
  std::atomic<int> tokens_;
};

/// How one attempt failed.
struct failed_attempt {
  retry_class what = retry_class::permanent;
  std::optional<duration> hint = std::nullopt;  ///< the pause that the store asked for
  time_point now{};                             ///< when it failed
};

namespace detail {
/// Counts that a request is repeated because of `why`, in the figures of the loop's runtime.
void count_retry(executor& ex, bool throttled, const std::exception_ptr& why) noexcept;
}  // namespace detail

/// Decides, for one request, whether to try again and after which pause: exponential backoff with full jitter within
/// the shared quota.
///
/// While the store asks for fewer requests, pauses are of throttling_base each, since a request_gate makes them fewer,
/// and retry_options::patience is the one bound: attempts and quota are for failures.
///
/// A failure that can be corrected (the region, the clock, the credentials) is tried again at once, each of the three
/// once per request, outside quota and count. Uses neither a clock nor random numbers; nothing waits here.
class retry_policy {
 public:
  /// `quota` must outlive the policy.
  retry_policy(const retry_options& options, retry_quota& quota) noexcept : options_(options), quota_(&quota) {}

  /// The pause before the next attempt, or nothing: give up and report this failure. `jitter` is uniform in [0, 1].
  std::optional<duration> after_failure(const failed_attempt& failed, double jitter) noexcept;

  /// To be called when an attempt failed that brought a good part of the answer: the count of attempts starts again.
  /// The quota is not refilled.
  void made_progress() noexcept {
    attempts_ = 1;
    refused_since_.reset();
  }

  /// To be called once when the request has succeeded: returns the cost of the last retry, or one token when there was
  /// none, to the quota.
  void after_success() noexcept {
    quota_->give(last_cost_ == 0 ? 1 : last_cost_);
    last_cost_ = 0;
  }

  /// Attempts begun so far that counted, the first one included.
  int attempts() const noexcept { return attempts_; }
  /// True if the store has asked for fewer requests for longer than retry_options::patience.
  bool out_of_patience() const noexcept { return out_of_patience_; }

 private:
  /// The pause if the store asks for fewer requests; nothing: the patience is at its end.
  std::optional<duration> wait_for_store(const failed_attempt& failed, double jitter) noexcept;
  /// The pause before retry number `retries`, with jitter.
  duration pause(duration base, int retries, const failed_attempt& failed, double jitter) const noexcept;

  retry_options options_;
  retry_quota* quota_;
  int attempts_ = 1;
  std::optional<time_point> refused_since_;  // the store has asked for fewer requests
  bool out_of_patience_ = false;
  int last_cost_ = 0;
  unsigned mended_ = 0;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/retry.ipp>
#endif
