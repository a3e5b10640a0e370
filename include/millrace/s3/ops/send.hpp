// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/retry/request_rate.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/session.hpp>
#include <millrace/s3/sign/signer.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

namespace detail {

failed_attempt attempt_that(const error& e) noexcept;
failed_attempt attempt_that(const http::error& e) noexcept;
/// Throws `why`, and says so if that is the end of the patience with the store.
[[noreturn]] void give_up(const retry_policy& policy, const session& s, const std::exception_ptr& why);

}  // namespace detail

/// Runs `attempt` (a callable that gives a task<T>; each call signs anew) until it succeeds, fails for good, or the
/// retry_policy ends it: then its last exception is thrown. A store that asks for fewer requests is waited for, up to
/// retry_options::patience. An answer that contradicts known facts (checksum_error, changed_error) may have a wrong
/// bit: the attempt is repeated once, immediately, whatever the policy says. Exceptions other than these, s3::error and
/// http::error are thrown as they come. All requests of a session share its quota.
///
/// Pauses are those of the executor's clock. If an attempt has a member progressed() that is true after a failure, it
/// has received a good part of the answer and the next call continues from there: it does not count as an attempt (its
/// cost does). A member go_elsewhere() is called before it is tried again, with true after a transient failure. The
/// callable lives in the coroutine. Dropping the task drops the attempt, or the pause, where it stands.
template <class T, class Attempt>
task<T> with_retries(const session& s, Attempt attempt) {
  retry_policy policy(s.retries(), s.quota());
  bool doubted = false;
  executor& ex = co_await this_executor();
  for (;;) {
    std::exception_ptr why;
    failed_attempt failed;
    bool once_more = false;
    try {
      task<T> one = attempt();
      if constexpr (std::is_void_v<T>) {
        co_await std::move(one);
        policy.after_success();
        co_return;
      } else {
        T result = co_await std::move(one);
        policy.after_success();
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
      once_more = !std::exchange(doubted, true);
    } catch (const changed_error&) {
      why = std::current_exception();
      once_more = !std::exchange(doubted, true);
    }
    failed.now = ex.now();
    if (once_more) {
      millrace::detail::count_retry(ex, false, why);
      continue;
    }
    if constexpr (requires { attempt.progressed(); }) {
      if (attempt.progressed()) policy.made_progress();
    }
    if constexpr (requires { attempt.go_elsewhere(true); }) {
      attempt.go_elsewhere(failed.what == retry_class::transient);
    }
    const std::optional<duration> pause = policy.after_failure(failed, s.jitter());
    if (!pause) detail::give_up(policy, s, why);
    millrace::detail::count_retry(ex, failed.what == retry_class::throttling, why);
    if (pause->count() > 0) co_await sleep_for(*pause);
  }
}

/// One S3 request before it is signed.
class operation {
 public:
  operation(std::string http_method, std::string bucket_name, std::string object_key)
      : method(std::move(http_method)), bucket(std::move(bucket_name)), key(std::move(object_key)) {}

  std::string method;
  std::string bucket;
  std::string key;    ///< raw bytes; empty for the bucket itself
  std::string query;  ///< encoded, without the question mark
  http::headers fields;
  std::optional<http::byte_range> range;
  bytes body;
  bool new_connection = false;  ///< data over an open one was damaged
  bool elsewhere = false;       ///< it is tried again: over a new connection, to another address
  std::string prefix;           ///< of the keys that a request for the bucket itself is about: it goes by their gate

  where at() const;
};

namespace detail {

/// Attempts at `op`, which goes elsewhere when the one before has failed in a way that another server may not.
template <class Attempt>
class attempts_at {
 public:
  attempts_at(operation& op, Attempt attempt) : op_(&op), attempt_(std::move(attempt)) {}
  auto operator()() { return attempt_(); }
  void go_elsewhere(bool now) noexcept { op_->elsewhere = now; }

 private:
  operation* op_;
  Attempt attempt_;
};

}  // namespace detail

/// with_retries() of an attempt at `op`, which must outlive the task: a further attempt after a transient failure has a
/// new connection, to another address of the host if there is one whose latest request has not failed. A store that
/// asks for fewer requests is asked again over the open ones: it has no time for handshakes.
template <class T, class Attempt>
task<T> with_retries(const session& s, operation& op, Attempt attempt) {
  detail::attempts_at<Attempt> each(op, std::move(attempt));
  return with_retries<T>(s, std::move(each));
}

namespace detail {

/// The signer of a loop: signers are for one thread, clients are for all.
class loop_signer final : public executor_service {
 public:
  static signer& of(executor& ex) {
    return ex.service<loop_signer>().signer_;
  }

 private:
  signer signer_;
};

/// The gate of `ex` for requests like `op`. S3 counts requests by prefix: the first component of the key is the one
/// that a data set has to itself. It counts those that write apart from those that read.
std::shared_ptr<millrace::detail::request_gate> gate_of(executor& ex, const session& s, const operation& op);

/// Signs `op` for this moment, with credentials of one snapshot.
http::request signed_request(executor& ex, const session& s, const operation& op, const credentials& who);

/// Reads an error answer and makes an exception of it; learns the bucket's region and the store's clock if the answer
/// has them.
MILLRACE_COROUTINE task<error> refusal(const session& s, const operation& op, http::exchange& x,
                                       const http::response_head& head);

/// Adds If-Match for the version `etag`, unless there is none to ask for, or the host is one of unconditional_hosts;
/// whether it did.
bool add_condition(executor& ex, const session& s, operation& op, std::string_view etag);

/// Later requests for `bucket` have no If-Match: its host refuses it for versions that exist.
void forgo_conditions(executor& ex, const session& s, const std::string& bucket);

/// Asks the credentials provider for the region of this machine: the last resort.
MILLRACE_COROUTINE task<void> learn_own_region(const session& s);

}  // namespace detail

/// Signs and sends `op` and waits for the head of its answer; anything but a success of S3's is thrown as s3::error
/// with S3's own code and message: other statuses than 200, 206 (and 204 for DELETE), and an object, or the head of
/// one, that has neither an ETag nor a field of S3's. One attempt, which passes the request_gate of its prefix: `when`,
/// if not null, is its turn there. The body is read from the exchange.
MILLRACE_COROUTINE task<http::exchange> send(const session& s, const operation& op, http::body_options body,
                                             millrace::detail::request_gate::turn* when = nullptr);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/send.ipp>
#endif
