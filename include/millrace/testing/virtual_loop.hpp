// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/testing/detail/seed_note.hpp>

namespace millrace::testing {

/// An executor on virtual time: no kernel, no network, no waiting. When nothing is ready the clock jumps to the next
/// timer; when there is no timer either, run_until() and block_on() throw `deadlock` instead of hanging.
///
/// A test asserts elapsed time exactly: `CHECK(loop.elapsed() == 5ms)`. With a seed the ready queue is shuffled. A test
/// that fails tells the seed, so that it can be replayed with MILLRACE_SEED: where an exception ends the loop (of a
/// REQUIRE, of the code under test) it is written to standard error, and `deadlock` has it in its text; for a CHECK,
/// which throws nothing, say `INFO(loop.seed_text())`. Jobs on real threads work too: the loop waits for the announced
/// ones (at most 10 s of real time, then `deadlock`).
class virtual_loop final : public executor {
 public:
  virtual_loop() { sample_account(1); }
  /// Shuffles the ready queue, reproducibly from `seed`.
  explicit virtual_loop(std::uint64_t seed) : seed_(seed) {
    sample_account(1);
    ready_queue().shuffle(seed);
  }
  ~virtual_loop() override { shut_down(); }

  std::int64_t now_ns() const noexcept override { return now_; }
  duration elapsed() const noexcept { return duration(now_ - start); }
  /// Lets virtual time pass without running anything.
  void advance(duration d) noexcept { now_ += d.count(); }

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
  std::mutex mutex_;
  std::condition_variable condition_;
  bool woken_ = false;
};

}  // namespace millrace::testing

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/impl/virtual_loop.ipp>
#endif
