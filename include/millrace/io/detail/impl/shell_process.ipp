// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <coroutine>

#include <millrace/base/compiler.hpp>
#include <millrace/io/detail/shell_process.hpp>

namespace millrace::detail {

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
    const either_readable wait(ending.pidfd(), -1, ex.now() + pause);
    co_await wait;
    pause = std::min(2 * pause, longest);
  }
}

}  // namespace millrace::detail
