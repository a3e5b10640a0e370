// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A word that is 0 in a child of fork(2), whatever it was in the parent (MADV_WIPEONFORK, Linux 4.14); null if the
/// kernel has none.
inline std::atomic<pid_t>* word_of_process() noexcept {
  static std::atomic<pid_t>* const word = []() noexcept -> std::atomic<pid_t>* {
    constexpr std::size_t size = 4096;
    void* const page = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    if (::madvise(page, size, MADV_WIPEONFORK) == 0) return new (page) std::atomic<pid_t>(0);
    ::munmap(page, size);
    return nullptr;
  }();
  return word;
}

/// getpid(2), without a system call if the kernel has the above.
inline pid_t process_id() noexcept {
  std::atomic<pid_t>* const word = word_of_process();
  if (MILLRACE_UNLIKELY(word == nullptr)) return ::getpid();
  pid_t id = word->load(std::memory_order_relaxed);
  if (MILLRACE_UNLIKELY(id == 0)) {
    id = ::getpid();
    word->store(id, std::memory_order_relaxed);
  }
  return id;
}

/// In which process an object was made. After fork(2) the child has a copy of it, but none of its threads, and shares
/// its descriptors with the parent: using it would wait for threads that do not exist, and read the parent's bytes. So
/// public functions call check(), and destructors that would wait, or send something to the kernel or a peer, ask
/// here() first: in a child they do nothing.
class own_process {
 public:
  own_process() noexcept : id_(process_id()) {}

  bool here() const noexcept { return process_id() == id_; }
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
