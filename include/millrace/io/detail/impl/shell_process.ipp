// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <coroutine>
#include <cstddef>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/root_scope.hpp>
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

MILLRACE_INLINE shell_process::shell_process(executor& ex, const std::string& command) : executor_(ex) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail(errno);
  output_ = ends[0];
  ::fcntl(output_, F_SETFL, O_NONBLOCK);
  const int error = spawn(command, ends[1]);
  ::close(ends[1]);
  if (error != 0) {
    ::close(output_);
    fail(error);
  }
#ifdef SYS_pidfd_open
  pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));  // close-on-exec; none before Linux 5.3
#endif
}

MILLRACE_INLINE shell_process::~shell_process() {
  ::kill(-pid_, SIGKILL);
  ::close(output_);
  child_process ending(pid_, pidfd_);
  if (ending.reap()) return;
  try {
    root_scope::of(executor_).adopt_droppable(detail::reap(std::move(ending)));
  } catch (...) {  // no memory for it: the process stays a zombie
  }
}

MILLRACE_INLINE bool shell_process::read_into(std::string& to, std::size_t limit, bool& too_long) {
  char buffer[4096];
  bool open = true;
  for (;;) {
    const ssize_t n = ::read(output_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      open = n < 0 && errno == EAGAIN;
      break;
    }
    if (static_cast<std::size_t>(n) > limit - to.size()) {
      too_long = true;
      open = false;
      break;
    }
    to.append(buffer, static_cast<std::size_t>(n));
  }
  ::explicit_bzero(buffer, sizeof buffer);
  return open;
}

MILLRACE_INLINE bool shell_process::ended(int& exit_status) const noexcept {
  siginfo_t info;
  info.si_pid = 0;
  const int rc = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (rc < 0 && errno == EINTR) return false;
  if (rc == 0 && info.si_pid == 0) return false;
  // Where SIGCHLD is ignored no status is left behind (ECHILD): what it wrote has to tell then.
  exit_status = rc < 0 ? 0 : info.si_code == CLD_EXITED ? info.si_status : -1;
  return true;
}

MILLRACE_INLINE int shell_process::spawn(const std::string& command, int output) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  if (::posix_spawn_file_actions_init(&files) != 0) return ENOMEM;
  if (::posix_spawnattr_init(&attributes) != 0) {
    ::posix_spawn_file_actions_destroy(&files);
    return ENOMEM;
  }
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, static_cast<short>(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  int error = ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  if (error == 0) error = ::posix_spawn_file_actions_adddup2(&files, output, 1);
  if (error == 0) {
    std::string shell = "sh";
    std::string flag = "-c";
    std::string text = command;
    char* arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
    error = ::posix_spawn(&pid_, "/bin/sh", &files, &attributes, arguments, environ);
    ::explicit_bzero(text.data(), text.size());
  }
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return error;
}

}  // namespace millrace::detail
