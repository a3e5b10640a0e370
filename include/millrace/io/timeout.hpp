// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/coro/started.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/sync/event.hpp>

namespace millrace {

/// with_timeout() was over before its task.
class timeout_error : public error {
 public:
  using error::error;
};

namespace detail {

/// Sets an event at a time.
class alarm final : private timer_node {
 public:
  alarm(executor& ex, event& e) noexcept : executor_(ex), event_(e) {}
  ~alarm() override { executor_.remove_timer(*this); }
  void set(time_point due) { executor_.add_timer(*this, due); }

 private:
  void fire() noexcept override { event_.set(); }
  executor& executor_;
  event& event_;
};

template <class T>
task<void> run_and_tell(task<T> t, std::optional<T>& result, event& over) {
  struct tell {
    event& e;
    ~tell() { e.set(); }
  } guard{over};
  result.emplace(co_await std::move(t));
}
template <class = void>
task<void> run_and_tell(task<void> t, event& over) {
  struct tell {
    event& e;
    ~tell() { e.set(); }
  } guard{over};
  co_await std::move(t);
}

}  // namespace detail

/// Runs `t`, and drops it where it stands when it takes longer than `limit` of the executor's clock: then throws
/// timeout_error. A result that is there when the time is up counts. The task starts through the run queue. Dropping
/// the await drops the task.
template <class T>
task<T> with_timeout(duration limit, task<T> t) {
  executor& ex = co_await this_executor();
  stage_record* const stage = co_await this_stage();
  event over;
  std::optional<std::conditional_t<std::is_void_v<T>, char, T>> result;
  task<void> telling;
  if constexpr (std::is_void_v<T>) {
    telling = detail::run_and_tell(std::move(t), over);
  } else {
    telling = detail::run_and_tell(std::move(t), result, over);
  }
  started<void> running(ex, std::move(telling), stage);
  detail::alarm clock_alarm(ex, over);
  clock_alarm.set(detail::deadline_after(ex, limit));
  co_await over.wait();
  if (!running.done()) throw timeout_error("timed out after " + std::to_string(limit.count() / 1000000) + " ms");
  running.take();
  if constexpr (!std::is_void_v<T>) co_return std::move(*result);
}

}  // namespace millrace
