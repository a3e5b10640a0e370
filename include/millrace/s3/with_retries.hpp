// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include <millrace/base/rng.hpp>
#include <millrace/http/error.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/retry_class.hpp>
#include <millrace/s3/session.hpp>

namespace millrace::s3 {

namespace detail {

/// Decides after a failure whether to try again, and after which pause: full-jitter exponential backoff, base 50 ms,
/// 1 s when the store asked for fewer requests, at most 20 s (AWS SDKs, standard mode of 2026). What can be mended
/// (region, clock, credentials) is mended once, without a pause.
class backoff {
 public:
  explicit backoff(int attempts) noexcept : left_(attempts - 1), random_(static_cast<std::uint64_t>(monotonic_ns())) {}

  std::optional<duration> after(retry_class what) noexcept {
    switch (what) {
      case retry_class::permanent:
        return std::nullopt;
      case retry_class::skew:
      case retry_class::region:
      case retry_class::expired:
        if (std::exchange(mended_, true)) return std::nullopt;
        return duration(0);
      case retry_class::transient:
      case retry_class::throttling:
        break;
    }
    if (left_-- <= 0) return std::nullopt;
    const double base = what == retry_class::throttling ? 1.0 : 0.05;
    const double seconds = std::min(base * static_cast<double>(std::uint64_t(1) << std::min(tried_++, 16)), 20.0);
    return duration(static_cast<std::int64_t>(seconds * random_.uniform() * 1e9));
  }

 private:
  int left_;
  int tried_ = 0;
  bool mended_ = false;
  rng random_;
};

}  // namespace detail

/// Runs `attempt` (a callable that gives a task<T>; each call signs anew) until it succeeds, fails for good, or the
/// configured number of attempts is used up; then its last exception is thrown. The callable lives in the coroutine.
template <class T, class Attempt>
task<T> with_retries(const session& s, Attempt attempt) {
  detail::backoff policy(s.base().max_attempts);
  for (;;) {
    std::exception_ptr failed;
    std::optional<duration> pause;
    try {
      task<T> one = attempt();
      co_return co_await std::move(one);
    } catch (const error& e) {
      failed = std::current_exception();
      pause = policy.after(classify(e.status(), e.code()));
    } catch (const http::error& e) {
      failed = std::current_exception();
      pause = policy.after(e.transient() ? retry_class::transient : retry_class::permanent);
    }
    if (!pause) std::rethrow_exception(failed);
    if (pause->count() > 0) co_await sleep_for(*pause);
  }
}

}  // namespace millrace::s3
