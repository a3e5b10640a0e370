// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <sys/stat.h>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/loop/detail/owned_fd.hpp>
#include <millrace/loop/event_loop.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::detail {

/// What a file operation needs to stay alive while the kernel works on it.
struct file_keep {
  explicit file_keep(std::shared_ptr<owned_fd> fd) noexcept : descriptor(std::move(fd)) {}
  std::shared_ptr<owned_fd> descriptor;  // not closed, and its number not reused, under the operation
  bytes memory;
  std::string path;        // what an open's request is to name
  struct ::statx status {};  // what a stat's request is to fill
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
  /// What an open gave.
  owned_fd take_opened() noexcept { return std::move(opened_); }
  /// What a stat gave.
  const struct ::statx& taken_status() const noexcept { return status; }

 private:
  MILLRACE_INLINE void complete(std::int64_t result) noexcept override;
  // The request, with what the job itself keeps. Static: of the job only this is there yet.
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

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/detail/impl/file_job.ipp>
#endif
