// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include <liburing.h>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>

#if MILLRACE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace millrace::detail {

/// An io_uring: setting it up as the kernel allows, entering the kernel as seldom as possible.
template <class = void>
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
  int open(unsigned entries, unsigned completions, flavour best) noexcept {
    int error = EINVAL;
    for (int f = static_cast<int>(best); f <= static_cast<int>(flavour::plain) && error == EINVAL; ++f) {
      error = open_as(entries, completions, static_cast<flavour>(f));
    }
    return error;
  }
  void close() noexcept {
    if (!open_) return;
#if MILLRACE_TSAN
    __tsan_release(const_cast<char*>(&addresses_));
#endif
    io_uring_queue_exit(&ring_);
    open_ = false;
  }

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
  io_uring_sqe* entry() noexcept {
    io_uring_sqe* e = io_uring_get_sqe(&ring_);
    if (e != nullptr) return e;
    io_uring_submit(&ring_);  // what it could not take stays; the next wait() or poke() tells why
    return io_uring_get_sqe(&ring_);
  }

  /// Submits, and lets completions come in. No system call when there is nothing to submit and nothing to fetch.
  int poke() noexcept {
    if (io_uring_sq_ready(&ring_) > 0) return io_uring_submit_and_get_events(&ring_);
    const unsigned flags = IO_URING_READ_ONCE(*ring_.sq.kflags);
    if ((flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) return io_uring_get_events(&ring_);
    return 0;
  }

  /// Submits and waits for a completion, at most for `timeout`.
  int wait(std::optional<duration> timeout) noexcept {
    io_uring_cqe* unused = nullptr;
    if (!timeout) return io_uring_submit_and_wait_timeout(&ring_, &unused, 1, nullptr, nullptr);
    __kernel_timespec t{timeout->count() / 1000000000, timeout->count() % 1000000000};
    return io_uring_submit_and_wait_timeout(&ring_, &unused, 1, &t, nullptr);
  }

  /// Takes one completion, which must be there.
  struct completion {
    std::uint64_t data;
    int result;
  };
  completion take() noexcept {
    io_uring_cqe* cqe = nullptr;
    io_uring_peek_cqe(&ring_, &cqe);
    const completion c{cqe->user_data, cqe->res};
    io_uring_cqe_seen(&ring_, cqe);
    return c;
  }

 private:
  int open_as(unsigned entries, unsigned completions, flavour f) noexcept {
    io_uring_params p;
    std::memset(&p, 0, sizeof p);
    p.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
    p.cq_entries = completions;
    if (f == flavour::deferred) {
      p.flags |= IORING_SETUP_SUBMIT_ALL | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SINGLE_ISSUER |
                 IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED;
    } else if (f == flavour::cooperative) {
      p.flags |= IORING_SETUP_SUBMIT_ALL | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_COOP_TASKRUN;
    }
    const int rc = io_uring_queue_init_params(entries, &ring_, &p);
    if (rc < 0) return -rc;
#if MILLRACE_TSAN
    __tsan_acquire(const_cast<char*>(&addresses_));
#endif
    constexpr unsigned needed = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG | IORING_FEAT_SUBMIT_STABLE;
    if ((p.features & needed) != needed) {
      io_uring_queue_exit(&ring_);
      return ENOSYS;
    }
    open_ = true;
    flavour_ = f;
    return 0;
  }

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
