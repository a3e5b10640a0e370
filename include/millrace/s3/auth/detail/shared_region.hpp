// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <millrace/coro/root_scope.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/sync/remote_waiters.hpp>

namespace millrace::s3::detail {

/// The region of a `Source`, asked for once for all who want to know it, on any number of executors: the answer is
/// kept; a failure is shared by those who wait for it, and the next one asks again. Like a refresh the question belongs
/// to the executor that began it, and dropping one who waits disturbs no other.
template <class Source>
class shared_region {
 public:
  explicit shared_region(std::shared_ptr<Source> source) : source_(std::move(source)) {}

  static task<std::string> get(std::shared_ptr<shared_region> self) {
    executor& ex = co_await this_executor();
    for (;;) {
      std::uint64_t seen = 0;
      bool start = false;
      {
        std::lock_guard lock(self->mutex_);
        if (self->answer_) co_return *self->answer_;
        seen = self->finished_;
        start = !std::exchange(self->running_, true);
      }
      if (start) begin(ex, self);
      co_await self->waiters_.until_above(seen, self->finished_, self->mutex_);
      std::lock_guard lock(self->mutex_);
      if (self->error_) std::rethrow_exception(self->error_);
      // Without an answer: the loop that asked has ended before there was one.
    }
  }

 private:
  /// An executor that ends drops the asking where it stands: those who wait on others are told, and begin anew.
  class report {
   public:
    explicit report(shared_region& r) noexcept : region_(r) {}
    report(const report&) = delete;
    report& operator=(const report&) = delete;
    ~report() {
      if (!told_) region_.finish(std::nullopt, nullptr);
    }
    void tell(std::optional<std::string> answer, std::exception_ptr failed) noexcept {
      told_ = true;
      region_.finish(std::move(answer), std::move(failed));
    }

   private:
    shared_region& region_;
    bool told_ = false;
  };

  static void begin(executor& ex, const std::shared_ptr<shared_region>& self) {
    try {
      root_scope::of(ex).adopt_droppable(run(self));
    } catch (...) {
      self->finish(std::nullopt, std::current_exception());
      throw;
    }
  }

  static task<void> run(std::shared_ptr<shared_region> self) {
    report at_end(*self);
    std::optional<std::string> answer;
    std::exception_ptr failed;
    try {
      task<std::string> asking = self->source_->region();
      answer.emplace(co_await std::move(asking));
    } catch (...) {
      failed = std::current_exception();
    }
    at_end.tell(std::move(answer), std::move(failed));
  }

  void finish(std::optional<std::string> answer, std::exception_ptr failed) noexcept {
    std::lock_guard lock(mutex_);
    if (answer) answer_ = std::move(answer);
    error_ = std::move(failed);
    running_ = false;
    ++finished_;
    waiters_.wake_all();
  }

  const std::shared_ptr<Source> source_;
  std::mutex mutex_;
  std::optional<std::string> answer_;
  std::exception_ptr error_;
  bool running_ = false;
  std::uint64_t finished_ = 0;
  remote_waiters waiters_;
};

}  // namespace millrace::s3::detail
