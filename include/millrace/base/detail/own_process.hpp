// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <new>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>

namespace millrace::detail {

/// In which process an object was made. After fork(2) the child has a copy of it, but none of its threads, and shares
/// its descriptors with the parent: using it would wait for threads that do not exist, and read the parent's bytes. So
/// public functions call check(), and destructors that would wait, or send something to the kernel or a peer, ask
/// here() first: in a child they do nothing.
///
/// A call of getpid(2), some 50 ns: for what happens once for a run, a batch or a request, not for each item.
class own_process {
 public:
  own_process() noexcept : id_(::getpid()) {}

  bool here() const noexcept { return ::getpid() == id_; }
  /// `what`: "a runtime", "an event loop".
  void check(const char* what) const {
    if (MILLRACE_UNLIKELY(!here())) refuse(what);
  }

 private:
  [[noreturn]] MILLRACE_NOINLINE static void refuse(const char* what) {
    throw usage_error(std::string(what) +
                      " was used in a child process that fork() has made of its own process: a child makes another");
  }

  pid_t id_;
};

/// Moves `object` to where nothing destroys it. Without memory for that it is destroyed all the same.
template <class T>
void leak(T& object) noexcept {
  static_cast<void>(new (std::nothrow) T(std::move(object)));
}

}  // namespace millrace::detail
