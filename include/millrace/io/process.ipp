// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <coroutine>
#include <cstddef>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/io/process.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE either_readable::awaiter::awaiter(int a, int b, time_point due, promise_base& promise)
    : loop_(event_loop::of(promise.get_executor())),
      promise_(promise),
      a_(a),
      b_(b),
      due_(due),
      first_(*this),
      second_(*this) {}

MILLRACE_INLINE void either_readable::awaiter::await_suspend(std::coroutine_handle<> handle) {
  node_.set(handle, promise_.stage());
  loop_.add_timer(*this, due_);
  try {
    if (a_ >= 0) loop_.watch(first_, a_, POLLIN);
    if (b_ >= 0) loop_.watch(second_, b_, POLLIN);
  } catch (...) {
    stop();
    throw;
  }
}

MILLRACE_INLINE void either_readable::awaiter::stop() noexcept {
  loop_.remove_timer(*this);
  if (first_.watched()) loop_.unwatch(first_);
  if (second_.watched()) loop_.unwatch(second_);
}

MILLRACE_INLINE bool child_process::reap() noexcept {
  if (pid_ < 0) return true;
  const pid_t ended = ::waitpid(pid_, nullptr, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
  pid_ = -1;
  return true;
}

MILLRACE_COROUTINE_BODY task<void> reap(child_process ending) {
  executor& ex = co_await this_executor();
  constexpr duration longest(1'000'000'000);
  duration pause = ending.pidfd() < 0 ? duration(1'000'000) : longest;  // without a descriptor time is asked
  while (!ending.reap()) {
    const either_readable wait(ending.pidfd(), -1, added(ex.now(), pause));
    co_await wait;
    pause = std::min(2 * pause, longest);
  }
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_COROUTINE_BODY task<process_result> run_process(std::string command, duration longest, std::size_t limit) {
  executor& ex = co_await this_executor();
  const time_point due = detail::added(ex.now(), longest);
  process_result result;
  detail::shell_process<> process(ex, command);
  detail::wipe(command);
  bool open = true;
  for (;;) {
    const bool ended = process.ended(result.exit_status);  // before the last look: its output is in the pipe by then
    if (open) open = process.read_into(result.output, limit, result.too_long);
    if (ended || result.too_long) break;
    const time_point now = ex.now();
    if (now >= due) {
      throw io_error(std::errc(ETIMEDOUT), "the process was not done within " +
                                    std::to_string(longest / std::chrono::milliseconds(1)) + " ms");
    }
    time_point wake = due;
    // Without a descriptor for its end, a closed output says that the end is near, and then time is asked.
    if (process.pidfd() < 0) wake = std::min(due, detail::added(now, duration(10'000'000)));
    const detail::either_readable wait(open ? process.output() : -1, process.pidfd(), wake);
    co_await wait;
  }
  co_return std::move(result);
}

}  // namespace millrace
