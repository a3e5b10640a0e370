// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/runtime_counts.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE retry_class classify(int status, std::string_view code) noexcept {
  struct row {
    std::string_view code;
    retry_class what;
  };
  static constexpr row table[] = {
      // "Standard" retry mode of the AWS SDKs (botocore/retries/standard.py): throttling.
      {"SlowDown", retry_class::throttling},
      {"Throttling", retry_class::throttling},
      {"ThrottlingException", retry_class::throttling},
      {"ThrottledException", retry_class::throttling},
      {"RequestThrottled", retry_class::throttling},
      {"RequestThrottledException", retry_class::throttling},
      {"RequestLimitExceeded", retry_class::throttling},
      {"BandwidthLimitExceeded", retry_class::throttling},
      {"TooManyRequestsException", retry_class::throttling},
      {"LimitExceededException", retry_class::throttling},
      {"ProvisionedThroughputExceededException", retry_class::throttling},
      {"TransactionInProgressException", retry_class::throttling},
      {"EC2ThrottledException", retry_class::throttling},
      {"PriorRequestNotComplete", retry_class::throttling},
      // ... and transient.
      {"RequestTimeout", retry_class::transient},
      {"RequestTimeoutException", retry_class::transient},
      // S3 and its C client (aws-c-s3) add these; the last is the answer of STS while an identity provider is away.
      {"InternalError", retry_class::transient},
      {"InternalErrors", retry_class::transient},
      {"ServiceUnavailable", retry_class::transient},
      {"IDPCommunicationError", retry_class::transient},
      // 409: another request for the same name is being carried out.
      {"ConditionalRequestConflict", retry_class::transient},
      {"OperationAborted", retry_class::transient},
      // S3 accepts signatures within 15 minutes of its own clock.
      {"RequestTimeTooSkewed", retry_class::skew},
      // The redirector of botocore; the new region is in x-amz-bucket-region or in <Region>.
      {"PermanentRedirect", retry_class::region},
      {"TemporaryRedirect", retry_class::region},
      {"AuthorizationHeaderMalformed", retry_class::region},
      {"IllegalLocationConstraintException", retry_class::region},
      // Session tokens that ran out or were revoked.
      {"ExpiredToken", retry_class::expired},
      {"ExpiredTokenException", retry_class::expired},
      {"InvalidToken", retry_class::expired},
      {"InvalidTokenId", retry_class::expired},
      {"InvalidAccessKeyId", retry_class::expired},  // of a role: deleted meanwhile, or not yet known everywhere
      {"RequestExpired", retry_class::expired},
      {"TokenRefreshRequired", retry_class::expired},
  };
  for (const row& r : table) {
    if (r.code == code) return r.what;
  }
  // An answer that began as a success and is an error document or cut short: S3 failed half-way (botocore takes it
  // for a 500).
  if (status >= 200 && status < 300) return retry_class::transient;
  switch (status) {
    case 0:  // refused, reset, timed out, cut short
      return retry_class::transient;
    case 429:
      return retry_class::throttling;
    case 301:
    case 302:
    case 307:
      return retry_class::region;
    default:
      return http::may_pass(status) ? retry_class::transient : retry_class::permanent;
  }
}

MILLRACE_INLINE retry_class classify(http::failure kind) noexcept {
  using k = http::failure;
  struct row {
    k kind;
    retry_class what;
  };
  static constexpr row table[] = {
      {k::resolve, retry_class::transient},  // connector errors of smithy-rs; resolvers fail for seconds at a time
      {k::connect, retry_class::transient},  // botocore: ConnectionError, ConnectTimeoutError; a broken handshake too
      {k::timeout, retry_class::transient},  // botocore: ReadTimeoutError; aws-c-s3: a connection below 1 B/s for 30 s
      {k::broken, retry_class::transient},   // botocore: ConnectionClosedError, IncompleteReadError
      {k::protocol,
       retry_class::transient},          // botocore: any HTTPClientError; the next connection may have no such proxy
      {k::tls, retry_class::permanent},  // a certificate does not become right by asking again
      {k::too_large, retry_class::permanent},  // our own limit
      {k::status, retry_class::permanent},     // not S3's: those are judged by status and code
  };
  for (const row& r : table) {
    if (r.kind == kind) return r.what;
  }
  return retry_class::permanent;
}

MILLRACE_INLINE std::optional<duration> parse_retry_after(std::string_view text) noexcept {
  const std::optional<std::int64_t> value = text::parse_decimal<std::int64_t>(text, 0, 999'999'999);
  if (!value) return std::nullopt;
  return duration(*value * 1'000'000);
}

MILLRACE_INLINE std::optional<duration> retry_hint(const http::headers& fields, std::int64_t now) {
  if (const std::string* ms = fields.find("x-amz-retry-after")) return parse_retry_after(*ms);
  const std::string* value = fields.find("retry-after");
  if (value == nullptr) return std::nullopt;
  if (const std::optional<duration> seconds = parse_retry_after(*value)) return *seconds * 1000;
  const std::optional<std::int64_t> due = text::parse_http_date(*value, now);
  if (!due) return std::nullopt;
  return duration(std::clamp<std::int64_t>(*due - now, 0, 999'999'999) * 1'000'000'000);
}

MILLRACE_INLINE void detail::count_retry(executor& ex, bool throttled, const std::exception_ptr& why) noexcept {
  runtime_counts* const counts = ex.runtime().counts();
  if (counts == nullptr) return;
  std::string reason;
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& e) {
    try {
      reason = e.what();
      if (throttled) counts->throttles.add(reason);
    } catch (...) {  // no memory for the reason: it counts without one
      if (throttled) counts->throttles.add();
    }
  } catch (...) {
  }
  if (reason.empty()) return counts->retries.add();
  counts->retries.add(std::move(reason));
}

MILLRACE_INLINE bool retry_quota::take(int cost) noexcept {
  int have = tokens_.load(std::memory_order_relaxed);
  do {
    if (have < cost) return false;
  } while (!tokens_.compare_exchange_weak(have, have - cost, std::memory_order_relaxed));
  return true;
}

MILLRACE_INLINE void retry_quota::give(int tokens) noexcept {
  int have = tokens_.load(std::memory_order_relaxed);
  int then;
  do {
    then = std::min(capacity_, have + tokens);
  } while (!tokens_.compare_exchange_weak(have, then, std::memory_order_relaxed));
}

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
  const bool throttled = failed.what == retry_class::throttling;
  if (throttled && options_.patience.count() > 0) return wait_for_store(failed, jitter);
  if (attempts_ >= options_.max_attempts) return std::nullopt;
  const int cost = throttled ? 5 : 14;  // those of the SDKs
  if (!quota_->take(cost)) return std::nullopt;
  last_cost_ = cost;
  return pause(throttled ? options_.throttling_base : options_.base, attempts_++, failed, jitter);
}

MILLRACE_INLINE std::optional<duration> retry_policy::wait_for_store(const failed_attempt& failed,
                                                                     double jitter) noexcept {
  if (!refused_since_) refused_since_ = failed.now;
  const duration left = options_.patience - (failed.now - *refused_since_);
  out_of_patience_ = left.count() <= 0;
  if (out_of_patience_) return std::nullopt;
  return std::min(left, pause(options_.throttling_base, 1, failed, jitter));
}

MILLRACE_INLINE duration retry_policy::pause(duration base, int retries, const failed_attempt& failed,
                                             double jitter) const noexcept {
  const double longest = static_cast<double>(options_.max_pause.count());
  const int doublings = std::min(retries - 1, 30);
  const double full = std::min(longest, static_cast<double>(base.count()) * static_cast<double>(1u << doublings));
  const duration ours = detail::nanoseconds(full * std::clamp(jitter, 0.0, 1.0));
  if (!failed.hint) return ours;
  return std::clamp(*failed.hint, ours, detail::added(ours, options_.max_over_hint));
}

}  // namespace millrace
