// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/coro/executor.hpp>

namespace millrace::inline MILLRACE_ABI::testing {

/// Nothing is ready, no timer is armed, no operation is under way, and a coroutine still waits.
class deadlock : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace millrace::testing

namespace millrace::inline MILLRACE_ABI::testing::detail {

/// The seed of a shuffled loop, which must be known when a test fails: written to standard error if an
/// exception ends the loop, as of a REQUIRE that does not hold.
class seed_note {
 public:
  seed_note() = default;
  explicit seed_note(std::uint64_t seed) : text_("MILLRACE_SEED=" + std::to_string(seed)) {}
  seed_note(const seed_note&) = delete;
  seed_note& operator=(const seed_note&) = delete;
  ~seed_note() {
    if (!text_.empty() && std::uncaught_exceptions() > exceptions_) std::fprintf(stderr, "%s\n", text_.c_str());
  }

  /// "MILLRACE_SEED=42"; "" if nothing is shuffled.
  const std::string& text() const noexcept { return text_; }
  /// Likewise in brackets, after a sentence.
  std::string added_to(const char* sentence) const {
    return text_.empty() ? std::string(sentence) : sentence + (" (" + text_ + ")");
  }

 private:
  const std::string text_;
  const int exceptions_ = std::uncaught_exceptions();  // those on their way since before the loop was made
};

}  // namespace millrace::testing::detail

namespace millrace::inline MILLRACE_ABI::testing {

/// An executor on virtual time: no kernel, no network, no waiting. When nothing is ready the clock jumps to the next
/// timer; when there is no timer either, run_until() and block_on() throw `deadlock` instead of hanging.
///
///     testing::virtual_loop loop;
///     spawned<void> watching(loop, watch());   // does something every 10 s
///     loop.run_for(25s);                       // twice so far
///
/// A test asserts elapsed time exactly: `CHECK(loop.elapsed() == 5ms)`. With a seed the ready queue is shuffled. A test
/// that fails prints the seed, so that it can be replayed with MILLRACE_SEED: if an exception ends the loop (of a
/// REQUIRE, of the code under test) it is written to standard error, and `deadlock` has it in its text; for a CHECK,
/// which throws nothing, say `INFO(loop.seed_text())`. Jobs on real threads work too: the loop waits for the announced
/// ones (at most 10 s of real time, then `deadlock`).
class virtual_loop final : public executor {
 public:
  virtual_loop() { sample_metrics(1); }
  /// Shuffles the ready queue, reproducibly from `seed`.
  explicit virtual_loop(std::uint64_t seed) : seed_(seed) {
    sample_metrics(1);
    ready_queue().shuffle(seed);
  }
  ~virtual_loop() override { shut_down(); }

  std::int64_t now_ns() const noexcept override { return now_; }
  duration elapsed() const noexcept { return duration(now_ - start); }
  /// Lets virtual time pass without running anything.
  void advance(duration d) noexcept { now_ = millrace::detail::added(now(), d).time_since_epoch().count(); }

  /// Runs coroutines that are ready, or become ready, within `d` of virtual time, those due at its end included; the
  /// clock then stands there. With 0 it runs those ready now, and those that they make ready. It is no deadlock when
  /// nothing is left to do. Announced operations of other threads are waited for, in real time. Not from a coroutine of
  /// this loop.
  void run_for(duration d) {
    end_ = millrace::detail::added(now(), d).time_since_epoch().count();
    ended_ = false;
    run_until([this] { return ended_; });
  }
  /// How many turns of the loop (see run_until()) have come to their end so far.
  std::uint64_t turns() const noexcept { return turns_; }

  /// "MILLRACE_SEED=42"; "" when nothing is shuffled.
  const std::string& seed_text() const noexcept { return seed_.text(); }

  /// The seed of this run: MILLRACE_SEED or `fallback`; printed to standard error when it comes from the environment.
  static std::uint64_t seed_from_environment(std::uint64_t fallback,
                                             const environment& variables = process_environment());

 protected:
  MILLRACE_INLINE void poll(bool block, std::optional<time_point> deadline) override;
  std::int64_t preemptions() const noexcept override { return 0; }
  MILLRACE_INLINE void wake() noexcept override;

 private:
  static constexpr std::int64_t start = 1'000'000'000;  // not 0: code that treats 0 as "no time" must not pass by luck
  const detail::seed_note seed_;
  std::int64_t now_ = start;
  std::int64_t end_ = INT64_MAX;  // of run_for()
  bool ended_ = true;
  std::uint64_t turns_ = 0;
  std::mutex mutex_;
  std::condition_variable condition_;
  bool woken_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::uint64_t virtual_loop::seed_from_environment(std::uint64_t fallback,
                                                                  const environment& variables) {
  const std::optional<std::string> set = variables.get("MILLRACE_SEED");
  if (!set) return fallback;
  std::fprintf(stderr, "MILLRACE_SEED=%s\n", set->c_str());
  return std::strtoull(set->c_str(), nullptr, 0);
}

inline void virtual_loop::poll(bool block, std::optional<time_point> deadline) {
  ++turns_;
  if (!block || !inbox_empty()) return;
  if (operations() > 0) {  // real time first, or a virtual time-out could overtake a real job
    std::unique_lock lock(mutex_);
    if (!woken_ && !condition_.wait_for(lock, std::chrono::seconds(10), [this] { return woken_; })) {
      ended_ = true;
      throw deadlock(seed_.added_to("an announced operation did not report back within 10 s"));
    }
    woken_ = false;
    return;
  }
  if (!ended_ && (!deadline || deadline->time_since_epoch().count() > end_)) {
    now_ = std::max(now_, end_);
    ended_ = true;
    return;
  }
  if (!deadline) throw deadlock(seed_.added_to("nothing is ready, no timer is armed, and a coroutine still waits"));
  now_ = std::max<std::int64_t>(now_, deadline->time_since_epoch().count());
}

inline void virtual_loop::wake() noexcept {
  std::lock_guard lock(mutex_);
  woken_ = true;
  condition_.notify_one();
}

}  // namespace millrace::testing
