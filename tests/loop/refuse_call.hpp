// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <thread>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace millrace::test {

/// A system call that the kernel is to refuse; with an argument: only when that has this value.
struct refused_call {
  long number;
  int error;
  std::int64_t argument = -1;
  std::uint32_t place = 1;  ///< of the argument, from 0
};

/// From here on the calling thread, and whom it starts, gets the error. There is no way back: for threads that end
/// soon. False where the kernel knows no filters.
inline bool refuse(const refused_call& call) {
  const bool any = call.argument < 0;
  const auto number = static_cast<std::uint32_t>(call.number);
  constexpr std::uint32_t at_number = offsetof(seccomp_data, nr);
  const std::uint32_t at_argument = offsetof(seccomp_data, args) + 8 * call.place;
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at_number),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, any ? at_number : at_argument),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, any ? number : static_cast<std::uint32_t>(call.argument), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(call.error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{sizeof filter / sizeof *filter, filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// The kernel side of the loop that runs on this thread fails from here on. False where there are no filters.
inline bool break_loop_of_this_thread() {
  bool all = true;
  for (const long number : {
           long(SYS_epoll_pwait),
           long(SYS_epoll_pwait2),
           long(SYS_io_uring_enter),
#ifdef SYS_epoll_wait
           long(SYS_epoll_wait),
#endif
       }) {
    all = all && refuse({number, EINVAL});
  }
  return all;
}

/// Runs `body()` where the kernel refuses the call, on a separate thread: others are not affected, and nothing has to
/// be put back. No CHECK in it, since Catch2 is for one thread. False, and nothing has run, where there are no filters.
template <class Body>
bool where_refused(const refused_call& call, Body body) {
  bool filtered = false;
  std::exception_ptr error;
  std::thread thread([&] {
    filtered = refuse(call);
    if (!filtered) return;
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  if (error) std::rethrow_exception(error);
  return filtered;
}

}  // namespace millrace::test
