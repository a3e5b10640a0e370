// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include <millrace/coro/executor.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/http/error.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/retry/retry_class.hpp>
#include <millrace/retry/retry_policy.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/session.hpp>
#include <millrace/s3/wire/checksum_error.hpp>

namespace millrace::s3 {

namespace detail {

failed_attempt attempt_that(const error& e) noexcept;
failed_attempt attempt_that(const http::error& e) noexcept;

inline void succeeded(const session& s, retry_policy& policy, const executor& ex) {
  policy.after_success();
  if (s.limiter() != nullptr) s.limiter()->ended(ex.now(), false);
}

}  // namespace detail

/// Runs `attempt` (a callable that gives a task<T>; each call signs anew) until it succeeds, fails for good, or the
/// retry_policy ends it: then its last exception is thrown. A checksum_error is retried once. Exceptions other than
/// these, s3::error and http::error are thrown as they come. All requests of a session share its quota.
///
/// Pauses are those of the executor's clock. In the adaptive mode every attempt waits for its turn (rate_limiter). An
/// attempt with a member progressed() that is true after a failure has brought a good part of the answer, which the
/// next call goes on from: it does not count (its cost does). The callable lives in the coroutine. Dropping the task
/// drops the attempt, or the pause, where it stands.
template <class T, class Attempt>
task<T> with_retries(const session& s, Attempt attempt) {
  retry_policy policy(s.retries(), s.quota());
  bool damaged = false;
  executor& ex = co_await this_executor();
  for (;;) {
    if (s.limiter() != nullptr) {
      for (duration turn; (turn = s.limiter()->acquire(ex.now())).count() > 0;) co_await sleep_for(turn);
    }
    std::exception_ptr why;
    failed_attempt failed;
    try {
      task<T> one = attempt();
      if constexpr (std::is_void_v<T>) {
        co_await std::move(one);
        detail::succeeded(s, policy, ex);
        co_return;
      } else {
        T result = co_await std::move(one);
        detail::succeeded(s, policy, ex);
        co_return std::move(result);
      }
    } catch (const error& e) {
      why = std::current_exception();
      failed = detail::attempt_that(e);
    } catch (const http::error& e) {
      why = std::current_exception();
      failed = detail::attempt_that(e);
    } catch (const checksum_error&) {
      why = std::current_exception();
      failed.what = std::exchange(damaged, true) ? retry_class::permanent : retry_class::transient;
    }
    if (s.limiter() != nullptr) s.limiter()->ended(ex.now(), failed.what == retry_class::throttling);
    if constexpr (requires { attempt.progressed(); }) {
      if (attempt.progressed()) policy.made_progress();
    }
    const std::optional<duration> pause = policy.after_failure(failed, s.jitter());
    if (!pause) std::rethrow_exception(why);
    if (pause->count() > 0) co_await sleep_for(*pause);
  }
}

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/impl/with_retries.ipp>
#endif
