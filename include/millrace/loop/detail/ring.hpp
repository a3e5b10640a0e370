// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <liburing.h>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>

#if MILLRACE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace millrace::detail {

/// An io_uring: setting it up as the kernel allows, entering the kernel as seldom as possible.
class ring {
 public:
  /// Ways to set a ring up, best first. `deferred` (Linux 6.1): one thread submits, completions are prepared when it
  /// asks. `cooperative` (5.19): without interrupting the thread. `plain`: 5.11, the oldest with timeouts on waits.
  enum class flavour { deferred, cooperative, plain };

  ring() noexcept = default;
  ring(const ring&) = delete;
  ring& operator=(const ring&) = delete;
  ~ring() { close(); }

  /// 0, or the errno value with which the kernel refuses. A `deferred` ring belongs to the thread that calls enable().
  int open(unsigned entries, unsigned completions, flavour best) noexcept;
  void close() noexcept;

  /// Makes the calling thread the ring's. Once, before the first entry.
  int enable() noexcept {
    if (flavour_ != flavour::deferred) return 0;
    return -io_uring_register(static_cast<unsigned>(ring_.ring_fd), IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  }

  flavour kind() const noexcept { return flavour_; }
  unsigned completions() const noexcept { return *ring_.cq.kring_entries; }
  unsigned completions_ready() const noexcept { return io_uring_cq_ready(&ring_); }
  unsigned overflows() const noexcept { return *ring_.cq.koverflow; }

  /// A free submission entry; null when the kernel takes no more at the moment.
  io_uring_sqe* entry() noexcept;

  /// Submits, and lets completions come in. No system call when there is nothing to submit and nothing to fetch.
  int poke() noexcept;

  /// Submits and waits for a completion, at most for `timeout`.
  int wait(std::optional<duration> timeout) noexcept;

  /// Takes one completion, which must be there.
  struct completion {
    std::uint64_t data;
    int result;
  };
  completion take() noexcept;

 private:
  int open_as(unsigned entries, unsigned completions, flavour f) noexcept;

#if MILLRACE_TSAN
  // liburing maps rings by system calls of its own, which the thread sanitizer does not see: it would take a ring for
  // the one of another thread that lay at the same address before.
  static constexpr char addresses_ = 0;
#endif
  io_uring ring_{};
  flavour flavour_ = flavour::plain;
  bool open_ = false;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/detail/impl/ring.ipp>
#endif
