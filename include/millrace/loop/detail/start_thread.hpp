// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>
#include <utility>

#include <pthread.h>
#include <signal.h>

namespace millrace::detail {

/// Starts one of the library's own threads: with every signal blocked, so that the program's handlers run on the
/// program's threads, and with a name (15 characters at most) for top(1) and debuggers. Throws std::system_error.
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
  return thread;
}

}  // namespace millrace::detail
