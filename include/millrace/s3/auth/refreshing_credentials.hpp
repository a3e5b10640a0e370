// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/coro/root_scope.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/s3/auth/credentials_provider.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/sync/remote_waiters.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// Keeps the credentials of a `Source` (default_chain, or a test's) fresh for any number of coroutines on any number of
/// executors. See refreshing_credentials for its guarantees.
template <class Source>
class refresher {
 public:
  explicit refresher(std::shared_ptr<Source> source) : source_(std::move(source)) {}

  static task<credentials> get(std::shared_ptr<refresher> self) {
    executor& ex = co_await this_executor();
    for (;;) {
      std::uint64_t seen = 0;
      std::optional<credentials> usable;
      const bool start = self->look(usable, seen);
      if (start) begin(ex, self);
      if (!usable) {
        co_await self->waiters_.until_above(seen, self->finished_, self->mutex_);
        usable = self->outcome();
      }
      if (usable) co_return std::move(*usable);
      // The loop that asked has ended before there was an answer; or this one was held up for so long that the answer
      // has expired or was refused meanwhile.
    }
  }

  bool refused(const credentials& used) noexcept {
    std::lock_guard lock(mutex_);
    if (!current_ || !current_->same_snapshot(used) || invalid_) return true;  // newer ones are there or on their way
    if (constant_) return false;
    const std::int64_t now = source_->now();
    if (now < refusals_count_from_) return false;  // fresh ones that are refused too: asking again would not help
    refusals_count_from_ = now + 60;
    invalid_ = true;
    return true;
  }

  /// How often the source was called, and how often that failed.
  std::uint64_t refreshes() const noexcept {
    std::lock_guard lock(mutex_);
    return finished_;
  }
  std::uint64_t failures() const noexcept {
    std::lock_guard lock(mutex_);
    return failures_;
  }
  /// The source of the present credentials; empty before there are any.
  std::string source() const {
    std::lock_guard lock(mutex_);
    return where_from_;
  }

 private:
  using found = typename decltype(std::declval<Source&>().resolve())::value_type;
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  /// True when the caller is to begin a refresh.
  bool look(std::optional<credentials>& usable, std::uint64_t& seen) {
    std::lock_guard lock(mutex_);
    const std::int64_t now = source_->now();
    seen = finished_;
    if (current_ && !invalid_ && now < usable_until_) usable = current_;
    if (running_ || (usable && now < refresh_at_)) return false;
    running_ = true;
    return true;
  }

  /// Runs in the background, for all waiters: the one that began it may be dropped. A loop that ends does not wait long
  /// for it.
  static void begin(executor& ex, const std::shared_ptr<refresher>& self) {
    try {
      root_scope::of(ex).adopt_droppable(run(self));
    } catch (...) {
      self->finish(nullptr, std::current_exception());
      throw;
    }
  }

  static task<void> run(std::shared_ptr<refresher> self) {
    // An executor that ends drops this: waiters on others are notified, and begin a new one.
    class report {
     public:
      explicit report(refresher& r) noexcept : refresher_(&r) {}
      report(const report&) = delete;
      report& operator=(const report&) = delete;
      ~report() {
        if (refresher_ != nullptr) refresher_->finish(nullptr, nullptr);
      }
      void done() noexcept { refresher_ = nullptr; }

     private:
      refresher* refresher_;
    };
    report at_end(*self);
    std::optional<found> result;
    std::exception_ptr failed;
    try {
      task<found> asking = self->source_->resolve();
      result.emplace(co_await std::move(asking));
    } catch (...) {
      failed = std::current_exception();
    }
    at_end.done();
    self->finish(result ? &*result : nullptr, failed);
  }

  /// Neither result nor failure: it was dropped.
  void finish(found* result, std::exception_ptr failed) noexcept {
    std::lock_guard lock(mutex_);
    const std::int64_t now = source_->now();
    try {
      if (result != nullptr) failed = take(*result, now);
      if (failed) {
        ++failures_;
        failed = after_failure(std::move(failed), now);
      } else if (result == nullptr) {
        put_off(now);  // loops that end so soon would drop the next one, too
      }
    } catch (...) {  // no memory to say it
      failed = std::current_exception();
    }
    error_ = std::move(failed);
    running_ = false;
    ++finished_;
    waiters_.wake_all();
  }

  /// Null when the credentials can be used.
  std::exception_ptr take(found& result, std::int64_t now) {
    const std::optional<std::int64_t> end = result.who.expires_at();
    const std::int64_t left = end ? *end - now : 0;
    if (end && left <= 0 && !result.of_instance) {
      return std::make_exception_ptr(
          configuration_error("the credentials of " + result.source + " had expired when they came"));
    }
    current_ = std::move(result.who);
    where_from_ = std::move(result.source);
    of_instance_ = result.of_instance;
    constant_ = result.constant;
    invalid_ = false;
    if (!end) {
      usable_until_ = refresh_at_ = never;
    } else if (of_instance_ && left < extension) {
      extend(now, "instance metadata gives credentials that end soon or have ended");
    } else {
      // Between an eighth and a quarter of their life before the end, at most 15 minutes: a thousand ranks that began
      // together do not refresh together.
      const double ahead = static_cast<double>(std::min(left / 4, std::int64_t(900)));
      usable_until_ = *end - std::min(left / 10, std::int64_t(10));
      refresh_at_ = *end - static_cast<std::int64_t>(ahead * (1.0 - 0.5 * source_->random()));
      warned_ = false;
    }
    return nullptr;
  }

  /// Does not ask the source for a minute or two; false when the present credentials do not last that long.
  bool put_off(std::int64_t now) {
    const std::int64_t pause = 60 + static_cast<std::int64_t>(60 * source_->random());
    if (!current_ || invalid_ || now >= usable_until_ || usable_until_ - now <= pause) return false;
    refresh_at_ = now + pause;
    return true;
  }

  std::exception_ptr after_failure(std::exception_ptr failed, std::int64_t now) {
    if (!current_ || invalid_ || put_off(now)) return failed;
    if (!of_instance_) {
      refresh_at_ = now;
      return failed;
    }
    extend(now, "instance metadata gives no new credentials");
    return nullptr;
  }

  /// Services continue to accept instance credentials while the metadata service fails.
  void extend(std::int64_t now, const char* why) {
    usable_until_ = now + extension + static_cast<std::int64_t>(300 * source_->random());
    refresh_at_ = now + extension / 2;
    if (std::exchange(warned_, true)) return;
    const std::string line = std::string("millrace: ") + why + "; the old ones are used on";
    millrace::detail::log_to_process(log_record(log_level::warning, line));
  }

  /// The result of a refresh that was waited for.
  std::optional<credentials> outcome() {
    std::lock_guard lock(mutex_);
    const std::int64_t end = current_ ? current_->expires_at().value_or(never) : 0;
    if (current_ && !invalid_ && source_->now() < std::max(usable_until_, end)) return current_;
    if (error_) std::rethrow_exception(error_);
    return std::nullopt;
  }

  static constexpr std::int64_t extension = 600;

  const std::shared_ptr<Source> source_;
  mutable std::mutex mutex_;
  std::optional<credentials> current_;
  std::string where_from_;
  std::int64_t usable_until_ = never;
  std::int64_t refresh_at_ = never;
  std::int64_t refusals_count_from_ = std::numeric_limits<std::int64_t>::min();
  bool of_instance_ = false;
  bool constant_ = false;
  bool invalid_ = false;
  bool warned_ = false;
  bool running_ = false;
  std::uint64_t finished_ = 0;
  std::uint64_t failures_ = 0;
  std::exception_ptr error_;
  remote_waiters waiters_;
};

/// The region of a `Source`, requested once for all waiters on any number of executors: the answer is kept; a failure
/// is shared by those that wait for it, and the next call requests it again. Like a refresh the request belongs to the
/// executor that began it, and dropping one waiter does not affect others.
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
  /// An executor that ends drops the request: waiters on others are notified, and begin a new one.
  class report {
   public:
    explicit report(shared_region& r) noexcept : region_(r) {}
    report(const report&) = delete;
    report& operator=(const report&) = delete;
    ~report() {
      if (!finished_) region_.finish(std::nullopt, nullptr);
    }
    void tell(std::optional<std::string> answer, std::exception_ptr failed) noexcept {
      finished_ = true;
      region_.finish(std::move(answer), std::move(failed));
    }

   private:
    shared_region& region_;
    bool finished_ = false;
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

namespace millrace::inline MILLRACE_ABI::s3 {

/// Credentials that expire and are replaced in time: requested from `Source` on first use and before they expire.
///
/// One refresh is under way at a time, for all coroutines on all loops. It begins an eighth to a quarter of the
/// credentials' life before they expire (at most 15 minutes, differently in every process), on the loop of the request
/// that finds them old, and no request waits for it while the present ones are valid; one that fails is repeated a
/// minute or two later and has no effect until they expire. After that, and after a refusal by the store, requests wait
/// for it and share its failure. Credentials of an instance are used after they expire for as long as its metadata
/// service gives no others (static stability), which one line in the log reports. Credentials that do not expire
/// are kept until refused.
///
/// Dropping a get() at any moment, also the one that began the refresh, does not affect others: the refresh belongs to
/// the loop. A loop that ends (block_on and run() drain theirs) waits root_scope::patience for it and then drops it;
/// waiters on other loops begin a new one. Thread-safe; may go before its gets() have ended.
///
/// `Source` has `task<T> resolve()`, where T has `credentials who`, `std::string source`, `bool of_instance` and `bool
/// constant`; `std::int64_t now()` in unix seconds and `double random()` in [0, 1), both thread-safe; and
/// `task<std::string> region()`.
template <class Source>
class refreshing_credentials final : public credentials_provider {
 public:
  explicit refreshing_credentials(std::shared_ptr<Source> source)
      : refresher_(std::make_shared<detail::refresher<Source>>(source)),
        region_(std::make_shared<detail::shared_region<Source>>(std::move(source))) {}

  /// Throws the exceptions of the source.
  task<credentials> get() override { return detail::refresher<Source>::get(refresher_); }
  /// Drops the present credentials when they are `used`; false when the source cannot have others, and when the last
  /// ones were refused less than a minute ago.
  bool refused(const credentials& used) override { return refresher_->refused(used); }
  /// Requested once for all; after a failure the next call requests it again.
  task<std::string> region() override { return detail::shared_region<Source>::get(region_); }

  /// How often the source was called, and how often that failed.
  std::uint64_t refreshes() const noexcept { return refresher_->refreshes(); }
  std::uint64_t failures() const noexcept { return refresher_->failures(); }
  /// The source of the present credentials; empty before there are any.
  std::string source() const { return refresher_->source(); }

 private:
  const std::shared_ptr<detail::refresher<Source>> refresher_;
  const std::shared_ptr<detail::shared_region<Source>> region_;
};

}  // namespace millrace::s3
