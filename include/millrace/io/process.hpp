// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <coroutine>
#include <cstddef>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/wipe.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/root_scope.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/loop/event_loop.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Waits until one of two descriptors can be read or the time has come.
class either_readable {
 public:
  either_readable(int a, int b, time_point due) noexcept : a_(a), b_(b), due_(due) {}

  class awaiter : private timer_node {
   public:
    awaiter(int a, int b, time_point due, promise_base& promise);
    ~awaiter() override { stop(); }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle);
    void await_resume() noexcept { stop(); }

   private:
    class watch final : public fd_watch {
     public:
      explicit watch(awaiter& a) noexcept : awaiter_(a) {}

     protected:
      void ready(unsigned) noexcept override { awaiter_.wake(); }

     private:
      awaiter& awaiter_;
    };
    void fire() noexcept override { wake(); }
    void wake() noexcept {
      stop();
      loop_.post(node_);
    }
    void stop() noexcept;

    event_loop& loop_;
    promise_base& promise_;
    int a_;
    int b_;
    time_point due_;
    watch first_;
    watch second_;
    ready_node node_;
  };
  awaiter awaited_by(promise_base& promise) const { return awaiter(a_, b_, due_, promise); }

 private:
  int a_;
  int b_;
  time_point due_;
};

/// A child process that has been killed, or is about to end: until it is reaped its number is not reused.
class child_process {
 public:
  child_process() noexcept = default;
  /// Takes over `pidfd`, -1 if the kernel gave none.
  child_process(pid_t pid, int pidfd) noexcept : pid_(pid), pidfd_(pidfd) {}
  child_process(child_process&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::exchange(other.pidfd_, -1)) {}
  child_process& operator=(child_process&&) = delete;
  ~child_process() {
    reap();
    if (pidfd_ >= 0) ::close(pidfd_);
  }

  pid_t pid() const noexcept { return pid_; }
  int pidfd() const noexcept { return pidfd_; }
  /// False when it has not ended yet: killed, it may still wait for a disk. Never blocks.
  bool reap() noexcept;

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
};

/// Reaps `ending` when it has ended.
MILLRACE_COROUTINE task<void> reap(child_process ending);

/// A shell command in a process group of its own: standard input is /dev/null, standard output comes to us, standard
/// error is this program's (so a person sees it, and it does not get into messages). The whole group is killed at the
/// end, and a process that does not end at once is reaped by the executor's root scope, which stops waiting for it if
/// the executor ends first.
template <class = void>  // its destructor names a coroutine: see MILLRACE_COROUTINE
class shell_process {
 public:
  shell_process(executor& ex, const std::string& command) : executor_(ex) {
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
  shell_process(const shell_process&) = delete;
  shell_process& operator=(const shell_process&) = delete;
  ~shell_process() {
    ::kill(-pid_, SIGKILL);
    ::close(output_);
    child_process ending(pid_, pidfd_);
    if (ending.reap()) return;
    try {
      root_scope::of(executor_).adopt_droppable(detail::reap(std::move(ending)));
    } catch (...) {  // no memory for it: the process stays a zombie
    }
  }

  int output() const noexcept { return output_; }
  int pidfd() const noexcept { return pidfd_; }

  /// Appends the available output. Returns false at the end of the output, and if it is longer than `limit`.
  bool read_into(std::string& to, std::size_t limit, bool& too_long) {
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

  /// True when it has ended. It stays a zombie until the destructor has killed its group: so the number of the group
  /// cannot have been reused by then.
  bool ended(int& exit_status) const noexcept {
    siginfo_t info;
    info.si_pid = 0;
    const int rc = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    if (rc < 0 && errno == EINTR) return false;
    if (rc == 0 && info.si_pid == 0) return false;
    // If SIGCHLD is ignored there is no status (ECHILD): only the output counts then.
    exit_status = rc < 0 ? 0 : info.si_code == CLD_EXITED ? info.si_status : -1;
    return true;
  }

 private:
  [[noreturn]] static void fail(int error) {
    throw io_error::of(error, "cannot start a process");
  }

  int spawn(const std::string& command, int output) {
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

  executor& executor_;
  int output_ = -1;
  int pidfd_ = -1;
  pid_t pid_ = -1;
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// A process's standard output, and how it ended. Overwritten on destruction: it may be secrets.
class process_result {
 public:
  process_result() = default;
  process_result(process_result&&) noexcept = default;
  process_result& operator=(process_result&&) = delete;
  ~process_result() { detail::wipe(output); }

  std::string output;     ///< bytes of its standard output
  int exit_status = -1;   ///< -1: ended by a signal
  bool too_long = false;  ///< it wrote more than was allowed, and was killed
};

/// `process_result r = co_await run_process(command, longest, limit);` runs `sh -c command` to its end.
///
/// Its standard input is empty, its standard error that of this program. At most `limit` bytes of its standard output
/// are read; more, a time-out, or dropping the task kills the process and everything that it has started. The loop,
/// which must be a real one, is never held up: the end is reported by the kernel (a pidfd; asked for by a timer before
/// Linux 5.3), and nothing waits for a process that has been killed and has not ended yet. Any number may run at once.
/// Throws io_error if it cannot be started, or is not done within `longest` (code() is ETIMEDOUT then).
MILLRACE_COROUTINE task<process_result> run_process(std::string command, duration longest, std::size_t limit);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/process.ipp>
#endif
