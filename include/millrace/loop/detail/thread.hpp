// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <memory>
#include <utility>

#include <millrace/base/compiler.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// One of the library's own threads: it runs with all signals blocked but those of its own faults, so that the
/// program's handlers run on the program's threads; with a name for top(1) and debuggers; and without preempting the
/// program's threads, see let_waker_run().
///
/// Made of pthreads and not of std::thread, whose header takes 30 ms to compile and each body of a thread 15 more
/// (g++ 12, -O0); the name and the scheduling would need pthreads all the same.
class thread {
 public:
  thread() noexcept = default;
  /// Runs `body()`, which must not throw, on a new thread named `name` (15 characters at most). The body is destroyed
  /// on that thread. Throws io_error if no thread can be started.
  template <class Body>
  thread(const char* name, Body body) {
    Body* const all_of_it = new Body(std::move(body));
    try {
      start(name, &run<Body>, all_of_it);  // the thread's own from now on
    } catch (...) {
      delete all_of_it;
      throw;
    }
  }
  thread(thread&& other) noexcept : id_(other.id_), joinable_(other.joinable_) { other.joinable_ = false; }
  thread& operator=(thread&& other) noexcept;
  ~thread() { MILLRACE_ASSERT(!joinable_, "a thread was destroyed without being joined"); }

  bool joinable() const noexcept { return joinable_; }
  /// Waits for the end of the body.
  void join() noexcept;
  /// Keeps the thread on these CPUs. Returns an errno, 0 for success.
  int keep_on(const cpu_set_t& cpus) noexcept { return ::pthread_setaffinity_np(id_, sizeof cpus, &cpus); }
  /// In a child of fork(), where there is no such thread.
  void forget() noexcept { joinable_ = false; }

 private:
  template <class Body>
  static void* run(void* body) noexcept {
    Body* const mine = static_cast<Body*>(body);
    (*mine)();  // does not throw
    delete mine;
    return nullptr;
  }

  void start(const char* name, void* (*entry)(void*), void* argument);

  pthread_t id_{};
  bool joinable_ = false;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/detail/thread.ipp>
#endif
