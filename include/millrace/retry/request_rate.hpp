// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/sync/semaphore.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// How many requests of a client may begin in a second, if a store refuses some of them: additive increase,
/// multiplicative decrease (Chiu and Jain 1989).
///
/// There is no limit until two requests are refused with less than `quiet` successes between them: one refusal alone is
/// forgiven. Then it is half of the requests begun in the last second; a client that is refused as it starts begins at
/// `first_limit`, as all of its fleet do, and comes up by `start_step` with each success until the next refusal. Each
/// further refusal takes `cut` of the limit, and each success adds `step`, or `stride` after `quiet` of them in a row:
/// who asks for more is refused more often, which makes all rates alike. A limit of which less than half is used does
/// not grow, and is lifted after 4 * quiet successes in a row. A burst of refusals cuts once: only those of requests
/// begun after the latest cut count. Reads no clock.
class request_rate {
 public:
  bool limited() const noexcept { return limit_ < std::numeric_limits<double>::infinity(); }
  /// Requests in a second; infinity if there is no limit.
  double limit() const noexcept { return limit_; }
  /// The time at which the next one may begin.
  time_point next() const noexcept { return next_; }
  /// The same for one that is asked for at `asked`. If nothing else keeps it, a part of the time between two requests
  /// does, another one for each client: those that work in step do not ask all at once.
  time_point next(time_point asked) const noexcept;
  /// A request begins.
  void begun(time_point now) noexcept;
  /// A request has been answered, at `now`.
  void succeeded(time_point now) noexcept;
  /// A request that began at `begun` is refused. `jitter` is uniform in [0, 1]: clients that are refused together do
  /// not go on together.
  void refused(time_point begun, time_point now, double jitter) noexcept;

 private:
  static constexpr double least = 0.1;  // requests in a second
  static constexpr double first_limit = 4;
  static constexpr duration starting = std::chrono::seconds(2);
  static constexpr double start_step = 0.25;
  static constexpr double cut = 0.06;
  static constexpr double step = 0.05;
  static constexpr double stride = 0.12;
  static constexpr std::size_t quiet = 30;

  /// Requests that began in the second before `now`, by a count of which a part fades away with time.
  double recent(time_point now) const noexcept;

  double limit_ = std::numeric_limits<double>::infinity();
  std::size_t row_ = quiet;  // successes since the latest refusal that counted
  bool starts_ = false;      // the latest cut was to first_limit
  time_point cut_{};
  time_point next_{};
  double phase_ = 0;  // of the time between two requests: the jitter of the latest cut
  double count_ = 0;
  time_point counted_{};
  time_point first_{};  // when the first of all began
};

/// Holds requests back while the store asks for fewer: a request_rate, first in, first out. For the coroutines of one
/// executor.
///
///     const std::shared_ptr<request_gate> gate = request_gates::of(ex).gate(name);
///     const request_gate::turn turn = co_await gate->enter();
///     ...                                               // one request and its answer
///     gate->succeeded(ex.now());                        // or refused()
///
/// A coroutine that is dropped while it waits leaves its turn to the next.
class request_gate {
 public:
  request_gate() = default;
  request_gate(const request_gate&) = delete;
  request_gate& operator=(const request_gate&) = delete;

  class turn {
   public:
    time_point asked{};  ///< when the request came to the gate
    time_point begun{};  ///< when it may begin: the same, if nothing holds it back
  };
  /// Waits until the next request may begin. The gate must outlive the task.
  MILLRACE_COROUTINE task<turn> enter();
  /// The store has taken a request, by its answer at `now`.
  void succeeded(time_point now) noexcept { rate_.succeeded(now); }
  /// The store asked for fewer requests, in its answer to that of `t`. `jitter` as in request_rate.
  void refused(const turn& t, time_point now, double jitter) noexcept {
    ++refusals_;
    rate_.refused(t.begun, now, jitter);
  }

  const request_rate& rate() const noexcept { return rate_; }
  /// How often the store asked for fewer requests.
  std::uint64_t refusals() const noexcept { return refusals_; }
  /// Nothing waits and nothing is limited: a new gate would be equal.
  bool idle() const noexcept { return order_.used() == 0 && !rate_.limited(); }

 private:
  request_rate rate_;
  std::uint64_t refusals_ = 0;
  semaphore order_{1};  // held by the first of those that wait
};

/// The gates of one executor, by name. Each loop of a group learns from its own refusals.
class request_gates final : public executor_service {
 public:
  static request_gates& of(executor& ex) {
    return ex.service<request_gates>();
  }

  /// The gate of this name; idle ones may be forgotten when there are many.
  std::shared_ptr<request_gate> gate(const std::string& name);

  std::size_t size() const noexcept { return gates_.size(); }

 private:
  std::map<std::string, std::shared_ptr<request_gate>> gates_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/request_rate.ipp>
#endif
