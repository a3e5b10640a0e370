// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/io/file.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void file_job::start(event_loop& loop, ready_node& waiter) noexcept {
  loop_ = &loop;
  waiter_ = &waiter;
  loop.start(*this);
}

MILLRACE_INLINE void file_job::abandon() noexcept {
  if (loop_ == nullptr || done_) {
    delete this;
    return;
  }
  waiter_ = nullptr;
  loop_->cancel(*this);  // deletes the job here or later
}

MILLRACE_INLINE void file_job::complete(std::int64_t result) noexcept {
  result_ = result;
  done_ = true;
  if (request().what == file_request::kind::open && result >= 0) opened_ = owned_fd(static_cast<int>(result));
  if (request().what == file_request::kind::close && result != -ECANCELED) descriptor->release();
  if (waiter_ != nullptr) {
    loop_->post(*waiter_);
  } else {
    delete this;
  }
}

MILLRACE_INLINE void file_wait::awaiter::await_suspend(std::coroutine_handle<> handle) noexcept {
  suspend(handle);
  waiting_ = true;
  job_->start(loop_, node());
}

MILLRACE_INLINE file_part direct_part(const char* memory, std::size_t length, std::uint64_t offset) noexcept {
  constexpr std::size_t alignment = 4096;
  const auto memory_rest = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(memory) % alignment);
  const auto offset_rest = static_cast<std::size_t>(offset % alignment);
  if (memory_rest != offset_rest) return {length, false};
  if (offset_rest != 0) return {std::min(length, alignment - offset_rest), false};
  if (length < alignment) return {length, false};
  return {length / alignment * alignment, true};
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_COROUTINE_BODY task<file> file::open(std::string path, file_options o) {
  file f;
  f.path_ = std::move(path);
  const int access = O_CLOEXEC | (o.write ? O_RDWR : O_RDONLY);
  // O_NONBLOCK: opening a pipe must not wait for its other end.
  const int once = O_NONBLOCK | (o.write && o.create ? O_CREAT : 0) | (o.write && o.truncate ? O_TRUNC : 0);
  detail::open_result plain = co_await open_as(f.path_, access | once, o.mode);
  if (plain.error != 0) f.fail(plain.error, "cannot open");
  f.plain_ = std::make_shared<detail::owned_fd>(std::move(plain.fd));
  co_await f.size();
  ::fcntl(f.plain_->get(), F_SETFL, 0);
  if (o.direct) {
    detail::open_result direct = co_await open_as(f.path_, access | O_DIRECT | O_NONBLOCK, 0);
    if (direct.error == 0 && same_file(direct.fd.get(), f.plain_->get())) {
      f.direct_ = std::make_shared<detail::owned_fd>(std::move(direct.fd));
      ::posix_fadvise(f.plain_->get(), 0, 0, POSIX_FADV_RANDOM);  // it serves ragged ends only: no read-ahead
    }
  }
  co_return std::move(f);
}

MILLRACE_COROUTINE_BODY task<std::uint64_t> file::size() {
  check_open();
  file_request r;
  r.what = file_request::kind::stat;
  r.fd = plain_->get();
  auto job = std::make_unique<detail::file_job>(r, detail::file_keep(plain_));
  const std::int64_t result = co_await detail::file_wait(job);
  if (result < 0) fail(result, "cannot read its size");
  const struct ::statx& status = job->taken_status();
  if (S_ISDIR(status.stx_mode)) fail(-EISDIR, "cannot open");
  if (!S_ISREG(status.stx_mode) && !S_ISBLK(status.stx_mode)) fail(-EINVAL, "not a regular file");
  co_return status.stx_size;
}

MILLRACE_COROUTINE_BODY task<std::size_t> file::read_at(writable_bytes& to, std::size_t at, std::size_t length,
                                                        std::uint64_t offset) {
  if (at > to.capacity() || length > to.capacity() - at) detail::misused("file::read_at outside the buffer");
  check_open();
  std::size_t done = 0;
  while (done < length) {
    char* const memory = to.data() + at + done;
    const detail::file_part p = part(memory, length - done, offset + done);
    detail::file_keep keep(p.direct ? direct_ : plain_);
    keep.memory = to.share(0, to.capacity());
    file_request r;
    r.what = file_request::kind::read;
    r.fd = keep.descriptor->get();
    r.data = memory;
    r.size = p.size;
    r.offset = offset + done;
    auto job = std::make_unique<detail::file_job>(r, std::move(keep));
    const std::int64_t result = co_await detail::file_wait(job);
    if (result == 0) break;
    if (result > 0) done += static_cast<std::size_t>(result);
    if (result < 0 && !again(result, p)) fail(result, "cannot read", offset + done);
  }
  co_return done;
}

MILLRACE_COROUTINE_BODY task<void> file::write_at(bytes data, std::uint64_t offset) {
  check_open();
  std::size_t done = 0;
  while (done < data.size()) {
    const char* const memory = data.data() + done;
    const detail::file_part p = part(memory, data.size() - done, offset + done);
    detail::file_keep keep(p.direct ? direct_ : plain_);
    keep.memory = data;
    file_request r;
    r.what = file_request::kind::write;
    r.fd = keep.descriptor->get();
    r.data = const_cast<char*>(memory);
    r.size = p.size;
    r.offset = offset + done;
    auto job = std::make_unique<detail::file_job>(r, std::move(keep));
    const std::int64_t result = co_await detail::file_wait(job);
    if (result > 0) done += static_cast<std::size_t>(result);
    if (result <= 0 && !again(result, p)) fail(result == 0 ? -EIO : result, "cannot write", offset + done);
  }
}

MILLRACE_COROUTINE_BODY task<void> file::sync() {
  check_open();
  file_request r;
  r.what = file_request::kind::sync;
  r.fd = plain_->get();
  auto job = std::make_unique<detail::file_job>(r, detail::file_keep(plain_));
  const std::int64_t result = co_await detail::file_wait(job);
  if (result < 0) fail(result, "cannot bring it to the device");
}

MILLRACE_COROUTINE_BODY task<void> file::close() {
  direct_.reset();
  const std::shared_ptr<detail::owned_fd> last = std::exchange(plain_, nullptr);
  if (last == nullptr || last.use_count() > 1) co_return;
  file_request r;
  r.what = file_request::kind::close;
  r.fd = last->get();
  auto job = std::make_unique<detail::file_job>(r, detail::file_keep(last));
  const std::int64_t result = co_await detail::file_wait(job);
  if (result < 0) fail(result, "cannot close");
}

MILLRACE_COROUTINE_BODY task<detail::open_result> file::open_as(const std::string& path, int flags, unsigned mode) {
  detail::file_keep keep(nullptr);
  keep.path = path;
  file_request r;
  r.what = file_request::kind::open;
  r.flags = flags;
  r.mode = mode;
  auto job = std::make_unique<detail::file_job>(r, std::move(keep));
  const std::int64_t result = co_await detail::file_wait(job);
  detail::open_result o;
  if (result < 0) {
    o.error = result;
  } else {
    o.fd = job->take_opened();
  }
  co_return std::move(o);
}

MILLRACE_INLINE bool file::same_file(int a, int b) noexcept {
  struct ::stat sa;
  struct ::stat sb;
  return ::fstat(a, &sa) == 0 && ::fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

MILLRACE_INLINE bool file::again(std::int64_t result, const detail::file_part& p) noexcept {
  if (result == -EINVAL && p.direct) {
    direct_.reset();
    return true;
  }
  return result == -EINTR || result == -EAGAIN;
}

MILLRACE_INLINE void file::fail(std::int64_t result, const char* what, std::optional<std::uint64_t> offset) const {
  const int code = static_cast<int>(-result);
  where at;
  at.object = path_;
  at.offset = offset;
  throw io_error::of(code, what, std::move(at));
}

}  // namespace millrace
