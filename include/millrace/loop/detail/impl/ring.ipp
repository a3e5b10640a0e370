// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>
#include <optional>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loop/detail/ring.hpp>

namespace millrace::detail {

MILLRACE_INLINE int ring::open(unsigned entries, unsigned completions, flavour best) noexcept {
  int error = EINVAL;
  for (int f = static_cast<int>(best); f <= static_cast<int>(flavour::plain) && error == EINVAL; ++f) {
    error = open_as(entries, completions, static_cast<flavour>(f));
  }
  return error;
}

MILLRACE_INLINE void ring::close() noexcept {
  if (!open_) return;
#if MILLRACE_TSAN
  __tsan_release(const_cast<char*>(&addresses_));
#endif
  io_uring_queue_exit(&ring_);
  open_ = false;
}

MILLRACE_INLINE io_uring_sqe* ring::entry() noexcept {
  io_uring_sqe* e = io_uring_get_sqe(&ring_);
  if (e != nullptr) return e;
  io_uring_submit(&ring_);  // what it could not take stays; the next wait() or poke() tells why
  return io_uring_get_sqe(&ring_);
}

MILLRACE_INLINE int ring::poke() noexcept {
  if (io_uring_sq_ready(&ring_) > 0) return io_uring_submit_and_get_events(&ring_);
  const unsigned flags = IO_URING_READ_ONCE(*ring_.sq.kflags);
  if ((flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) return io_uring_get_events(&ring_);
  return 0;
}

MILLRACE_INLINE int ring::wait(std::optional<duration> timeout) noexcept {
  io_uring_cqe* unused = nullptr;
  if (!timeout) return io_uring_submit_and_wait_timeout(&ring_, &unused, 1, nullptr, nullptr);
  __kernel_timespec t{timeout->count() / 1000000000, timeout->count() % 1000000000};
  return io_uring_submit_and_wait_timeout(&ring_, &unused, 1, &t, nullptr);
}

MILLRACE_INLINE ring::completion ring::take() noexcept {
  io_uring_cqe* cqe = nullptr;
  io_uring_peek_cqe(&ring_, &cqe);
  const completion c{cqe->user_data, cqe->res};
  io_uring_cqe_seen(&ring_, cqe);
  return c;
}

MILLRACE_INLINE int ring::open_as(unsigned entries, unsigned completions, flavour f) noexcept {
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

}  // namespace millrace::detail
