// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <millrace/base/compiler.hpp>

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

/// One of the library's own threads: it runs with every signal blocked but those that it raises by a fault of its own,
/// so that the program's handlers run on the program's threads; with a name for top(1) and debuggers; and behind the
/// program's threads, see let_waker_run().
///
/// Made of pthreads and not of std::thread, whose header takes 30 ms to compile and each body of a thread 15 more
/// (g++ 12, -O0); the name and the scheduling would need pthreads all the same.
class thread {
 public:
  thread() noexcept = default;
  /// Runs `body()`, which must not throw, on a new thread named `name` (15 characters at most). The body is destroyed
  /// on that thread. Throws std::system_error when there is no thread to be had.
  template <class Body>
  thread(const char* name, Body body) {
    auto all_of_it = std::make_unique<Body>(std::move(body));
    start(name, &run<Body>, all_of_it.get());
    static_cast<void>(all_of_it.release());  // the thread's own now
  }
  thread(thread&& other) noexcept : id_(other.id_), joinable_(other.joinable_) { other.joinable_ = false; }
  thread& operator=(thread&& other) noexcept {
    MILLRACE_ASSERT(!joinable_, "a thread was replaced that nobody has joined");
    id_ = other.id_;
    joinable_ = other.joinable_;
    other.joinable_ = false;
    return *this;
  }
  ~thread() { MILLRACE_ASSERT(!joinable_, "a thread was dropped that nobody has joined"); }

  bool joinable() const noexcept { return joinable_; }
  /// Waits for the end of the body.
  void join() noexcept {
    MILLRACE_ASSERT(joinable_, "there is no thread to be joined");
    const int failed = ::pthread_join(id_, nullptr);
    MILLRACE_ASSERT(failed == 0, "a thread was to wait for its own end");
    joinable_ = false;
  }

 private:
  template <class Body>
  static void* run(void* body) noexcept {
    const std::unique_ptr<Body> mine(static_cast<Body*>(body));
    (*mine)();
    return nullptr;
  }

  void start(const char* name, void* (*entry)(void*), void* argument) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    // Not those that a thread raises by what it does itself: blocked, they end the program past its crash handler.
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) ::sigdelset(&all, own);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread begins with the mask of its maker
    const int failed = ::pthread_create(&id_, nullptr, entry, argument);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (failed != 0) throw std::system_error(failed, std::generic_category(), "no thread could be started");
    joinable_ = true;
    ::pthread_setname_np(id_, name);
    let_waker_run(id_);
  }

  pthread_t id_{};
  bool joinable_ = false;
};

}  // namespace millrace::detail
