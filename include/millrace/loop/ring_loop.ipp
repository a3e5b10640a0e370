// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loop/ring_loop.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

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
  io_uring_submit(&ring_);  // the rest stays; the next wait() or poke() reports why
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

MILLRACE_INLINE ring::completion ring::at(unsigned n) const noexcept {
  const io_uring_cqe& c = ring_.cq.cqes[(*ring_.cq.khead + n) & *ring_.cq.kring_mask];
  return {c.user_data, c.res};
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
  if (const int error = refused_call()) {
    io_uring_queue_exit(&ring_);
    return error;
  }
  open_ = true;
  flavour_ = f;
  return 0;
}

MILLRACE_INLINE int ring::refused_call() const noexcept {
  const auto fd = static_cast<unsigned>(ring_.ring_fd);
  const int entered = io_uring_enter(fd, 0, 0, 0, nullptr);
  if (entered < 0 && entered != -EBADFD) return -entered;  // that: not enabled yet
  const int registered = io_uring_register(fd, IORING_UNREGISTER_EVENTFD, nullptr, 0);
  return registered < 0 && registered != -ENXIO ? -registered : 0;  // that: there is none
}

MILLRACE_INLINE void prepare(io_uring_sqe* e, const file_request& r) noexcept {
  constexpr std::size_t longest = 0x7ffff000;
  const auto size = static_cast<unsigned>(r.size < longest ? r.size : longest);
  switch (r.what) {
    case file_request::kind::open:
      io_uring_prep_openat(e, AT_FDCWD, r.path, r.flags, r.mode);
      break;
    case file_request::kind::stat:
      io_uring_prep_statx(e, r.fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, r.status);
      break;
    case file_request::kind::read:
      io_uring_prep_read(e, r.fd, r.data, size, r.offset);
      break;
    case file_request::kind::write:
      io_uring_prep_write(e, r.fd, r.data, size, r.offset);
      break;
    case file_request::kind::allocate:
      // This is io_uring_prep_fallocate(), whose numbers have a sign in liburing 2.3 and none in 2.9.
      io_uring_prep_rw(IORING_OP_FALLOCATE, e, r.fd, nullptr, 0, r.offset);
      e->addr = r.size;
      break;
    case file_request::kind::close:
      io_uring_prep_close(e, r.fd);
      break;
    case file_request::kind::sync:
      io_uring_prep_fsync(e, r.fd, IORING_FSYNC_DATASYNC);
      break;
  }
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::unique_ptr<ring_loop> ring_loop::try_make(int& refused, flavour best, entries size) {
  std::unique_ptr<ring_loop> made(new ring_loop(best, size));
  refused = made->open();
  if (refused != 0) made.reset();
  return made;
}

MILLRACE_INLINE ring_loop::~ring_loop() {
  shut_down();
  if (!process().here()) return;
  MILLRACE_ASSERT(watches_.live() == 0, "an event loop was destroyed before its watches");
  end_polls();
}

MILLRACE_INLINE void ring_loop::watch(fd_watch& w, int fd, unsigned poll_events) {
  std::uint32_t index;
  if (w.watched()) {
    watches_.check(w);
    index = watches_.index_of(w);
    detail::watch_table::slot& s = watches_.at(index);
    if (s.fd == fd && s.events == poll_events && !s.broken) return;
    disarm(index);
    ++s.generation;
    s.broken = false;
  } else {
    to_arm_.reserve(watches_.size() + 1);
    cancels_.reserve(watches_.size() + 1);
    index = watches_.attach(w);
  }
  watches_.at(index).fd = fd;
  watches_.at(index).events = poll_events;
  list(index);
}

MILLRACE_INLINE void ring_loop::unwatch(fd_watch& w) noexcept {
  if (!w.watched()) return;
  if (process().here()) disarm(watches_.index_of(w));
  watches_.detach(w);
}

MILLRACE_INLINE void ring_loop::cancel(file_operation& op) noexcept {
  using place = detail::file_queue::place;
  if (detail::file_queue::place_of(op) == place::queued) {
    waiting_.remove(op);
    operation_finished();
    detail::file_queue::complete(op, -ECANCELED);
  } else if (detail::file_queue::place_of(op) == place::kernel && !detail::file_queue::cancelled(op)) {
    detail::file_queue::set_cancelled(op);
    in_kernel_.remove(op);
    ending_.push(op, place::ending);
  }
}

MILLRACE_INLINE void ring_loop::poll(bool block, std::optional<time_point> deadline) {
  own_ring();
  submit_changes();
  // A watch that was notified of a refusal may have made something ready.
  if (!to_arm_.empty() || reported_ || ring_.completions_ready() > 0) block = false;
  reported_ = false;
  std::optional<duration> timeout;
  if (block && deadline) {
    timeout = *deadline - now();
    if (timeout->count() <= 0) block = false;
  }
  // Only a loop that sleeps is woken. Armed earlier, it would cost a turn that does not sleep a call of the kernel.
  if (block && !wake_armed_ && !arm_wake()) block = false;
  if (block) {
    wake_.sleep_begins();
    if (!inbox_empty()) block = false;
  }
  const int rc = block ? ring_.wait(timeout) : ring_.poke();
  wake_.sleep_ends();
  if (rc < 0) check(-rc);
  take_completions(early_bytes);
}

MILLRACE_INLINE int ring_loop::open() noexcept {
  const int error = ring_.open(size_.submissions, size_.completions, best_);
  if (error == 0) capacity_ = ring_.completions();
  return error;
}

MILLRACE_INLINE void ring_loop::own_ring() {
  const pthread_t self = ::pthread_self();
  if (owned_ && ::pthread_equal(self, owner_)) return;
  if (owned_) {
    if (files_in_kernel() != 0) detail::misused("an event loop changed threads while a file operation was under way");
    renew();
  }
  if (const int error = ring_.enable()) fail(error, "cannot enable the ring");
  owner_ = self;
  owned_ = true;
}

MILLRACE_INLINE void ring_loop::renew() {
  ring_.close();
  polls_ = cancelling_ = others_ = 0;
  wake_armed_ = overflow_armed_ = false;
  cancels_.clear();
  arrived_ = 0;
  for (std::uint32_t i = 0; i < watches_.size(); ++i) {
    slot& s = watches_.at(i);
    s.polled = s.ending = false;
    if (s.owner != nullptr && !s.in_epoll && !s.broken) list(i);
  }
  owned_ = false;
  if (const int error = open()) fail(error, "cannot set up a ring");
}

MILLRACE_INLINE void ring_loop::check(int error) {
  if (error == ETIME || error == EINTR || error == EAGAIN || error == EBUSY) return;
  if (error == EEXIST) {
    // A new thread with the identity of the one that ended. The kernel took nothing from it.
    for (detail::file_queue* each : {&in_kernel_, &ending_}) {
      while (!each->empty()) waiting_.push(each->pop(), detail::file_queue::place::queued);
    }
    reading_ = 0;
    renew();
    return;
  }
  fail(error, "io_uring_enter(2) failed");
}

MILLRACE_INLINE void ring_loop::list(std::uint32_t index) noexcept {
  slot& s = watches_.at(index);
  if (s.listed) return;
  s.listed = true;
  to_arm_.push_back(index);
}

MILLRACE_INLINE void ring_loop::disarm(std::uint32_t index) noexcept {
  slot& s = watches_.at(index);
  if (s.polled) {
    cancels_.push_back(watches_.tag(index));
    s.ending = true;
  }
  if (s.in_epoll) overflow_->remove(s.fd, watches_.tag(index));
  s.polled = s.in_epoll = false;
}

MILLRACE_INLINE void ring_loop::submit_changes() {
  if (overflow_ && !overflow_armed_) arm_overflow();
  submit_cancels();
  if (!to_arm_.empty()) arm_watches();
  submit_files();
}

MILLRACE_INLINE void ring_loop::submit_early() noexcept {
  if (!owned_ || !::pthread_equal(::pthread_self(), owner_)) return;
  submit_files();
  ring_.submit();
}

MILLRACE_INLINE std::size_t ring_loop::read_bytes(const file_operation& op) noexcept {
  return op.request().what == file_request::kind::read ? op.request().size : 0;
}

MILLRACE_INLINE void ring_loop::submit_files() noexcept {
  queued_bytes_ = 0;
  while (!waiting_.empty() && files_in_kernel() < file_share()) {
    const std::size_t bytes = read_bytes(waiting_.front());
    if (reading_ != 0 && reading_ + bytes > most_reading) return;
    io_uring_sqe* e = ring_.entry();
    if (e == nullptr) return;
    file_operation& op = waiting_.pop();
    in_kernel_.push(op, detail::file_queue::place::kernel);
    reading_ += bytes;
    detail::prepare(e, op.request());
    io_uring_sqe_set_data64(e, detail::ring_data(op));
  }
}

MILLRACE_INLINE bool ring_loop::arm_wake() noexcept {
  io_uring_sqe* e = ring_.entry();
  if (e == nullptr) return false;
  io_uring_prep_poll_add(e, wake_.fd(), POLLIN);
  io_uring_sqe_set_data64(e, detail::ring_data(tag::wake));
  wake_armed_ = true;
  ++others_;
  return true;
}

MILLRACE_INLINE void ring_loop::arm_overflow() noexcept {
  io_uring_sqe* e = ring_.entry();
  if (e == nullptr) return;
  io_uring_prep_poll_add(e, overflow_->fd(), POLLIN);
  io_uring_sqe_set_data64(e, detail::ring_data(tag::overflow));
  overflow_armed_ = true;
  ++others_;
}

MILLRACE_INLINE void ring_loop::submit_cancels() noexcept {
  while (!ending_.empty() && submit_cancel(detail::ring_data(ending_.front()))) {
    in_kernel_.push(ending_.pop(), detail::file_queue::place::kernel);
  }
  std::size_t done = 0;
  while (done < cancels_.size() && submit_cancel(detail::ring_data_of_watch(cancels_[done]))) {
    watches_.at(static_cast<std::uint32_t>(cancels_[done])).ending = false;
    ++done;
  }
  cancels_.erase(cancels_.begin(), cancels_.begin() + static_cast<std::ptrdiff_t>(done));
}

MILLRACE_INLINE bool ring_loop::submit_cancel(std::uint64_t data) noexcept {
  io_uring_sqe* const e = cancelling_ < cancel_share() ? ring_.entry() : nullptr;
  if (e == nullptr) return false;
  // Polls too: a poll removal fails with -EALREADY when it meets a wake-up, also one after which the poll is armed
  // again (another event of the descriptor), and would then stay for ever. A cancellation leaves a mark.
  io_uring_prep_cancel64(e, data, 0);
  io_uring_sqe_set_data64(e, detail::ring_data(tag::cancel));
  ++cancelling_;
  return true;
}

MILLRACE_INLINE void ring_loop::arm_watches() {
  std::size_t done = 0;
  for (const std::size_t listed = to_arm_.size(); done < listed; ++done) {  // watches listed meanwhile: next turn
    const std::uint32_t index = to_arm_[done];
    slot& s = watches_.at(index);
    if (s.owner == nullptr || s.polled || s.in_epoll || s.broken) {
      s.listed = false;
    } else if (polls_ >= poll_share()) {
      s.listed = false;
      move_to_epoll(index);
    } else if (s.ending) {
      break;  // until its former poll is cancelled
    } else {
      io_uring_sqe* e = ring_.entry();
      if (e == nullptr) break;
      io_uring_prep_poll_add(e, s.fd, s.events);
      io_uring_sqe_set_data64(e, detail::ring_data_of_watch(watches_.tag(index)));
      s.listed = false;
      s.polled = true;
      ++polls_;
    }
  }
  to_arm_.erase(to_arm_.begin(), to_arm_.begin() + static_cast<std::ptrdiff_t>(done));
}

MILLRACE_INLINE void ring_loop::note_arrived() noexcept {
  for (const unsigned ready = ring_.completions_ready(); arrived_ < ready; ++arrived_) {
    const detail::ring::completion c = ring_.at(arrived_);
    if (static_cast<tag>(c.data & detail::ring_tag_mask) != tag::file) continue;
    reading_ -= read_bytes(*reinterpret_cast<const file_operation*>(c.data));
  }
  if (waiting_.empty()) return;
  submit_files();
  ring_.submit();
}

MILLRACE_INLINE void ring_loop::take_completions(std::size_t most_read) {
  note_arrived();
  std::size_t read = 0;
  for (unsigned n = arrived_; n > 0 && read < most_read; --n) {
    const detail::ring::completion c = ring_.take();
    --arrived_;
    switch (static_cast<tag>(c.data & detail::ring_tag_mask)) {
      case tag::file: {
        file_operation& op = *reinterpret_cast<file_operation*>(c.data);
        if (op.request().what == file_request::kind::read && c.result > 0) read += static_cast<std::size_t>(c.result);
        finish(op, c.result);
        break;
      }
      case tag::poll:
        --polls_;
        polled(detail::watch_of_ring_data(c.data), c.result);
        break;
      case tag::wake:
        --others_;
        wake_armed_ = false;
        wake_.clear();
        break;
      case tag::overflow:
        --others_;
        overflow_armed_ = false;
        overflow_->wait(duration(0), [this](std::uint64_t watch_tag, unsigned events) {
          if (slot* s = watches_.find(watch_tag)) detail::watch_table::report(*s->owner, events);
        });
        break;
      case tag::cancel:
        --cancelling_;
        break;
    }
  }
}

MILLRACE_INLINE void ring_loop::polled(std::uint64_t watch_tag, int result) noexcept {
  slot* s = watches_.find(watch_tag);
  if (s == nullptr) return;
  s->polled = false;
  const bool dead = result < 0 && result != -ECANCELED && result != -EINTR && result != -EAGAIN;
  if (dead) {
    s->broken = true;
  } else {
    list(static_cast<std::uint32_t>(watch_tag));
    if (result < 0) return;
  }
  detail::watch_table::report(*s->owner, dead ? unsigned(POLLNVAL) : static_cast<unsigned>(result));
}

MILLRACE_INLINE void ring_loop::finish(file_operation& op, std::int64_t result) noexcept {
  (detail::file_queue::place_of(op) == detail::file_queue::place::ending ? ending_ : in_kernel_).remove(op);
  operation_finished();
  detail::file_queue::complete(op, result);
}

MILLRACE_INLINE void ring_loop::end_polls() noexcept {
  if (!owned_ || !::pthread_equal(::pthread_self(), owner_)) return;
  while (polls_ > 0) {
    submit_cancels();
    const int rc = ring_.wait(std::nullopt);
    if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) return;
    take_completions(SIZE_MAX);
  }
}

MILLRACE_INLINE void ring_loop::move_to_epoll(std::uint32_t index) {
  slot& s = watches_.at(index);
  try {
    if (!overflow_) {
      overflow_.emplace();
      arm_overflow();
    }
    overflow_->set(s.fd, s.events, watches_.tag(index));
    s.in_epoll = true;
  } catch (...) {  // out of descriptors, or of the user's watches: this watch's trouble, not the loop's
    s.broken = true;
    reported_ = true;
    detail::watch_table::report(*s.owner, POLLNVAL);
  }
}

}  // namespace millrace
