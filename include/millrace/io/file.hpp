// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/loop/detail/descriptors.hpp>
#include <millrace/loop/event_loop.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Owns the resources of a file operation while the kernel works on it.
struct file_keep {
  explicit file_keep(std::shared_ptr<owned_fd> fd) noexcept : descriptor(std::move(fd)) {}
  std::shared_ptr<owned_fd> descriptor;  // not closed, and its number not reused, under the operation
  bytes memory;
  std::string path;        // the path of an open's request
  struct ::statx status {};  // filled by a stat's request
};

/// A file operation with one waiter. Owned by its awaiter; by the loop once the awaiter is dropped while it is under
/// way.
class file_job final : private file_keep, public file_operation {
 public:
  file_job(const file_request& r, file_keep keep) noexcept : file_keep(std::move(keep)), file_operation(of(r, *this)) {}

  void start(event_loop& loop, ready_node& waiter) noexcept;
  void abandon() noexcept;
  /// Bytes, 0, or a negative errno value.
  std::int64_t result() const noexcept { return result_; }
  /// The descriptor that an open returned.
  owned_fd take_opened() noexcept { return std::move(opened_); }
  /// The result of a stat.
  const struct ::statx& taken_status() const noexcept { return status; }

 private:
  MILLRACE_INLINE void complete(std::int64_t result) noexcept override;
  // The request, with pointers to the members of the job that it needs. Static: of the job only this is there yet.
  static file_request of(file_request r, file_keep& keep) noexcept {
    r.path = keep.path.c_str();
    r.status = &keep.status;
    return r;
  }

  event_loop* loop_ = nullptr;
  ready_node* waiter_ = nullptr;
  owned_fd opened_;
  std::int64_t result_ = 0;
  bool done_ = false;
};

/// Runs `job` and gives its result. Dropping it while the kernel works leaves the job to the loop, which asks for its
/// cancellation and keeps its memory until the kernel is done.
class file_wait {
 public:
  explicit file_wait(std::unique_ptr<file_job>& job) noexcept : job_(&job) {}

  class awaiter : private waiting_awaiter {
   public:
    awaiter(std::unique_ptr<file_job>& job, promise_base& promise)
        : waiting_awaiter(promise), job_(job), loop_(event_loop::of(promise.get_executor())) {}
    ~awaiter() {
      if (waiting_) job_.release()->abandon();
    }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) noexcept;
    std::int64_t await_resume() noexcept {
      waiting_ = false;
      return job_->result();
    }

   private:
    std::unique_ptr<file_job>& job_;
    event_loop& loop_;
    bool waiting_ = false;
  };
  awaiter awaited_by(promise_base& promise) const { return awaiter(*job_, promise); }

 private:
  std::unique_ptr<file_job>* job_;
};

/// The next piece of a transfer, and whether it bypasses the page cache.
struct file_part {
  std::size_t size;
  bool direct;
};

/// O_DIRECT wants memory, offset and length aligned, to the device's block size as a rule; 4096 suits every device in
/// use. The ragged head and tail go through the page cache, and all of it if memory and offset do not match.
file_part direct_part(const char* memory, std::size_t length, std::uint64_t offset) noexcept;

/// The result of an open: a descriptor or a negative errno value.
struct open_result {
  open_result() noexcept = default;
  owned_fd fd;
  std::int64_t error = 0;
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// Options of file::open(). By default a file that exists is opened for reading.
struct file_options {
  bool write = false;     ///< open for reading and writing
  bool create = false;    ///< with write: make the file when it does not exist
  bool truncate = false;  ///< with write: empty it
  /// Goes past the page cache (O_DIRECT) for the aligned part of each transfer, if the file system allows it: for
  /// data read once and larger than memory. Buffers of a slab pool are aligned.
  bool direct = false;
  unsigned mode = 0644;  ///< permissions of a file that is created, before the umask
};

/// A regular file (or block device), read and written through the event loop.
///
/// Works on executors that are event loops; any number of operations may be under way at once. Lifetime: file and
/// buffer must outlive the await, not the operation: that keeps the descriptor and the memory it works on. Dropping an
/// await orphans the operation: it is cancelled if the kernel can, and executor::drain() waits for its end; how much
/// of a dropped write was written is not known. Destroying the file closes it without a report: after writing, await
/// close(). Errors: io_error with path, byte offset and errno; usage_error when it is not open.
class file {
 public:
  file() noexcept = default;
  file(file&&) noexcept = default;
  file& operator=(file&&) noexcept = default;

  /// Opens `path`. Directories, pipes and the like are refused (EISDIR, EINVAL).
  MILLRACE_COROUTINE static task<file> open(std::string path, file_options o = {});

  explicit operator bool() const noexcept { return plain_ != nullptr; }
  const std::string& path() const noexcept { return path_; }
  /// True if the page cache is bypassed: asked for, and allowed by the file system.
  bool direct() const noexcept { return direct_ != nullptr; }

  /// Size in bytes, as the file system says now (0 for a block device).
  MILLRACE_COROUTINE task<std::uint64_t> size();

  /// Reads `length` bytes at `offset` of the file into `to`, from position `at` of the buffer on, and gives how many:
  /// fewer only at the end of the file. Nothing beyond `at + length` is touched.
  MILLRACE_COROUTINE task<std::size_t> read_at(writable_bytes& to, std::size_t at, std::size_t length,
                                               std::uint64_t offset);

  /// Writes all of `data` at `offset`.
  MILLRACE_COROUTINE task<void> write_at(bytes data, std::uint64_t offset);

  /// Waits until all written data has reached the device (fdatasync(2)).
  MILLRACE_COROUTINE task<void> sync();

  /// Closes the file and reports errors of earlier writes. If a dropped operation is still under way, the file is
  /// closed without a report when that has ended.
  MILLRACE_COROUTINE task<void> close();

 private:
  void check_open() const {
    if (plain_ == nullptr) detail::misused("a file was used that is not open: moved from, closed, or never opened");
  }
  MILLRACE_COROUTINE static task<detail::open_result> open_as(const std::string& path, int flags, unsigned mode);

  static bool same_file(int a, int b) noexcept;

  detail::file_part part(const char* memory, std::size_t length, std::uint64_t offset) const noexcept {
    return direct_ == nullptr ? detail::file_part{length, false} : detail::direct_part(memory, length, offset);
  }

  /// Returns true if the operation is to be tried once more: interrupted, or a file system that takes O_DIRECT for
  /// opening but not for this transfer.
  bool again(std::int64_t result, const detail::file_part& p) noexcept;

  [[noreturn]] void fail(std::int64_t result, const char* what,
                         std::optional<std::uint64_t> offset = std::nullopt) const;

  std::string path_;
  std::shared_ptr<detail::owned_fd> plain_;
  std::shared_ptr<detail::owned_fd> direct_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/file.ipp>
#endif
