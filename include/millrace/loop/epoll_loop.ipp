// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <optional>

#include <millrace/base/compiler.hpp>
#include <millrace/loop/epoll_loop.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE file_worker::~file_worker() {
  if (thread_.joinable()) {
    if (!executor_.process().here()) {
      thread_.forget();
      return;  // the end of changed_ would wait for that thread
    }
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_->notify_one();
    thread_.join();
  }
  delete changed_;
}

MILLRACE_INLINE void file_worker::submit(file_operation& op) noexcept {
  executor_.operation_started();
  const bool started = thread_.joinable() || start();
  std::lock_guard lock(mutex_);
  if (started) {
    waiting_.push(op, file_queue::place::queued);
    changed_->notify_one();
  } else {
    send_home(op, -ENOMEM);
  }
}

MILLRACE_INLINE void file_worker::cancel(file_operation& op) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (file_queue::place_of(op) != file_queue::place::queued) return;
    waiting_.remove(op);
  }
  executor_.operation_finished();
  file_queue::complete(op, -ECANCELED);
}

MILLRACE_INLINE bool file_worker::start() noexcept {
  try {
    thread_ = thread("millrace-file", [this] { work(); });
    return true;
  } catch (...) {  // no thread, or no memory for one
    return false;
  }
}

MILLRACE_INLINE void file_worker::work() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (waiting_.empty() && !stopping_) changed_->wait(lock);
    if (waiting_.empty()) return;
    file_operation& op = waiting_.pop();
    lock.unlock();
    const std::int64_t result = perform(op.request());
    lock.lock();
    send_home(op, result);
  }
}

MILLRACE_INLINE void file_worker::send_home(file_operation& op, std::int64_t result) noexcept {
  file_queue::set_result(op, result);
  const bool first = finished_.empty();
  finished_.push(op, file_queue::place::kernel);
  if (first) executor_.post_remote(home_);
}

MILLRACE_INLINE void file_worker::arrive() noexcept {
  file_queue arrived;
  {
    std::lock_guard lock(mutex_);
    arrived.swap(finished_);
  }
  while (!arrived.empty()) {
    file_operation& op = arrived.pop();
    executor_.operation_finished();
    file_queue::complete(op, file_queue::result(op));
  }
}

MILLRACE_INLINE std::int64_t file_worker::perform(const file_request& r) noexcept {
  for (;;) {
    const std::int64_t result = call(r);
    if (result >= 0) return result;
    if (errno != EINTR || r.what == file_request::kind::close) return -errno;  // closed all the same
  }
}

/// Also if a filter of system calls knows fstat() alone.
inline int status_of(int fd, struct ::statx& to) noexcept {
  const int result = ::statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &to);
  if (result == 0 || !is_missing_call(errno)) return result;
  struct ::stat plain {};
  if (::fstat(fd, &plain) != 0) return -1;
  to = {};
  to.stx_mask = STATX_TYPE | STATX_MODE | STATX_SIZE;
  to.stx_mode = static_cast<decltype(to.stx_mode)>(plain.st_mode);
  to.stx_size = static_cast<decltype(to.stx_size)>(plain.st_size);
  return 0;
}

MILLRACE_INLINE std::int64_t file_worker::call(const file_request& r) noexcept {
  const auto offset = static_cast<off_t>(r.offset);
  switch (r.what) {
    case file_request::kind::open:
      return ::open(r.path, r.flags, r.mode);
    case file_request::kind::stat:
      return status_of(r.fd, *r.status);
    case file_request::kind::read:
      return ::pread(r.fd, r.data, r.size, offset);
    case file_request::kind::write:
      return ::pwrite(r.fd, r.data, r.size, offset);
    case file_request::kind::allocate:
      return ::fallocate(r.fd, 0, offset, static_cast<off_t>(r.size));
    case file_request::kind::close:
      return ::close(r.fd);
    case file_request::kind::sync:
      return ::fdatasync(r.fd);
  }
  errno = EINVAL;
  return -1;
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void epoll_loop::watch(fd_watch& w, int fd, unsigned poll_events) {
  if (!w.watched()) {
    const std::uint32_t index = watches_.attach(w);
    try {
      epoll_.set(fd, poll_events, watches_.tag(index));
    } catch (...) {
      watches_.detach(w);
      throw;
    }
    watches_.at(index).fd = fd;
    watches_.at(index).events = poll_events;
    return;
  }
  watches_.check(w);
  const std::uint32_t index = watches_.index_of(w);
  detail::watch_table::slot& s = watches_.at(index);
  if (s.fd == fd && s.events == poll_events) return;
  if (s.fd != fd) {
    unwatch(w);
    watch(w, fd, poll_events);
    return;
  }
  epoll_.set(fd, poll_events, watches_.tag(index));
  s.events = poll_events;
}

MILLRACE_INLINE void epoll_loop::unwatch(fd_watch& w) noexcept {
  if (!w.watched()) return;
  const std::uint32_t index = watches_.index_of(w);
  if (process().here()) epoll_.remove(watches_.at(index).fd, watches_.tag(index));  // the set is the parent's, too
  watches_.detach(w);
}

MILLRACE_INLINE void epoll_loop::poll(bool block, std::optional<time_point> deadline) {
  std::optional<duration> timeout;
  if (!block) {
    if (watches_.live() == 0) return;
    timeout = duration(0);
  } else if (deadline) {
    timeout = *deadline - now();
  }
  wait(timeout);
}

MILLRACE_INLINE bool epoll_loop::wait(std::optional<duration> timeout) {
  bool message = false;
  if (!timeout || timeout->count() > 0) {
    wake_.sleep_begins();
    message = !inbox_empty();
    if (message) timeout = duration(0);
  }
  bool event;
  try {
    event = epoll_.wait(timeout, [this](std::uint64_t tag, unsigned events) { dispatch(tag, events); });
  } catch (...) {
    wake_.sleep_ends();
    throw;
  }
  wake_.sleep_ends();
  return event || message;
}

MILLRACE_INLINE void epoll_loop::dispatch(std::uint64_t tag, unsigned events) noexcept {
  if (tag == wake_tag) {
    wake_.clear();
  } else if (detail::watch_table::slot* s = watches_.find(tag)) {
    detail::watch_table::report(*s->owner, events);
  }
}

}  // namespace millrace
