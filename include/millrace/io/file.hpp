// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include <millrace/base/error.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/io/detail/file_job.hpp>
#include <millrace/io/detail/file_part.hpp>
#include <millrace/memory/writable_bytes.hpp>

namespace millrace {

/// Options of file::open(). By default a file that exists is opened for reading.
struct file_options {
  bool write = false;     ///< open for reading and writing
  bool create = false;    ///< with write: make the file when it does not exist
  bool truncate = false;  ///< with write: empty it
  /// Goes past the page cache (O_DIRECT) for the aligned part of each transfer, where the file system allows it: for
  /// data read once and larger than memory. Buffers of a slab pool are aligned.
  bool direct = false;
  unsigned mode = 0644;  ///< permissions of a file that is created, before the umask
};

/// A regular file (or block device), read and written through the event loop.
///
/// Works on executors that are event loops; any number of operations may be under way at once. Lifetime: file and
/// buffer must outlive the await, not the operation: that keeps the descriptor and the memory it works on. Dropping an
/// await orphans the operation: it is cancelled where the kernel can, and executor::drain() waits for its end; how much
/// of a dropped write was written is not known. Destroying the file closes it without a report: after writing, await
/// close(). Errors: io_error with path, byte offset and errno; usage_error when it is not open.
class file {
 public:
  file() noexcept = default;
  file(file&&) noexcept = default;
  file& operator=(file&&) noexcept = default;

  /// Opens `path`. Directories, pipes and the like are refused (EISDIR, EINVAL).
  template <class = void>
  static task<file> open(std::string path, file_options o = {}) {
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

  explicit operator bool() const noexcept { return plain_ != nullptr; }
  const std::string& path() const noexcept { return path_; }
  /// Whether the page cache is avoided: asked for, and allowed by the file system.
  bool direct() const noexcept { return direct_ != nullptr; }

  /// Size in bytes, as the file system says now (0 for a block device).
  template <class = void>
  task<std::uint64_t> size() {
    check_open();
    detail::file_keep keep(plain_);
    keep.status = std::make_unique<struct ::statx>();
    const struct ::statx* const status = keep.status.get();
    file_request r;
    r.what = file_request::kind::stat;
    r.fd = plain_->get();
    r.status = keep.status.get();
    auto job = std::make_unique<detail::file_job>(r, std::move(keep));
    const std::int64_t result = co_await detail::file_wait(job);
    if (result < 0) fail(result, "cannot read its size");
    if (S_ISDIR(status->stx_mode)) fail(-EISDIR, "cannot open");
    if (!S_ISREG(status->stx_mode) && !S_ISBLK(status->stx_mode)) fail(-EINVAL, "not a regular file");
    co_return status->stx_size;
  }

  /// Reads `length` bytes at `offset` of the file into `to`, from position `at` of the buffer on, and gives how many:
  /// fewer only at the end of the file. Nothing beyond `at + length` is touched.
  template <class = void>
  task<std::size_t> read_at(writable_bytes& to, std::size_t at, std::size_t length, std::uint64_t offset) {
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

  /// Writes all of `data` at `offset`.
  template <class = void>
  task<void> write_at(bytes data, std::uint64_t offset) {
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

  /// Waits until what was written has reached the device (fdatasync(2)).
  template <class = void>
  task<void> sync() {
    check_open();
    file_request r;
    r.what = file_request::kind::sync;
    r.fd = plain_->get();
    auto job = std::make_unique<detail::file_job>(r, detail::file_keep(plain_));
    const std::int64_t result = co_await detail::file_wait(job);
    if (result < 0) fail(result, "cannot bring it to the device");
  }

  /// Closes the file and reports what the system finds wrong with what was written. Where a dropped operation is still
  /// under way, the file is closed, without a report, when that has ended.
  template <class = void>
  task<void> close() {
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

 private:
  void check_open() const {
    if (plain_ == nullptr) detail::misused("a file was used that is not open: moved from, closed, or never opened");
  }
  template <class = void>
  static task<detail::open_result> open_as(const std::string& path, int flags, unsigned mode) {
    detail::file_keep keep(nullptr);
    keep.path = std::make_unique<const std::string>(path);
    file_request r;
    r.what = file_request::kind::open;
    r.flags = flags;
    r.mode = mode;
    r.path = keep.path->c_str();
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

  static bool same_file(int a, int b) noexcept {
    struct ::stat sa;
    struct ::stat sb;
    return ::fstat(a, &sa) == 0 && ::fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
  }

  detail::file_part part(const char* memory, std::size_t length, std::uint64_t offset) const noexcept {
    return direct_ == nullptr ? detail::file_part{length, false} : detail::direct_part(memory, length, offset);
  }

  /// Whether to try once more: interrupted, or a file system that takes O_DIRECT for opening but not for this transfer.
  bool again(std::int64_t result, const detail::file_part& p) noexcept {
    if (result == -EINVAL && p.direct) {
      direct_.reset();
      return true;
    }
    return result == -EINTR || result == -EAGAIN;
  }

  [[noreturn]] void fail(std::int64_t result, const char* what,
                         std::optional<std::uint64_t> offset = std::nullopt) const {
    const int code = static_cast<int>(-result);
    where at;
    at.object = path_;
    at.offset = offset;
    throw io_error(code, std::string(what) + ": " + std::strerror(code), std::move(at));
  }

  std::string path_;
  std::shared_ptr<detail::owned_fd> plain_;
  std::shared_ptr<detail::owned_fd> direct_;
};

}  // namespace millrace
