// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <poll.h>

#include <millrace/base/compiler.hpp>
#include <millrace/loop/epoll_loop.hpp>
#include <millrace/testing/detail/seed_note.hpp>

namespace millrace::testing {

/// How a jumping_loop tells that nothing goes on any more. Both are real time.
struct jumping_loop_options {
  /// The kernel has been silent for that long: time jumps. Data between two sockets of one machine is there when the
  /// call that sends it returns, or soon after.
  duration grace = duration(1'000'000);
  /// How long an announced operation (a pool job, a file operation) may take, and, when no timer is armed, a descriptor
  /// stay silent, before that is a deadlock.
  duration patience = duration(10'000'000'000);
};

/// Virtual time over real descriptors: an event loop for tests of clients, servers and time-outs that must neither wait
/// nor depend on how fast the machine is. Time stands still while anything goes on: a coroutine is ready, a descriptor
/// has something to report, an operation of another thread is under way. When all of that is over, the clock jumps to
/// the next timer. When there is no timer either, run_until() and block_on() throw `deadlock`, which names the
/// descriptors that are waited for.
///
///     testing::jumping_loop loop;
///     s3_server::server server;                                  // both sides live on this loop
///     const spawned<void> serving(loop, server.serve());
///     server.faults().add({}, fault::stall_head());
///     block_on(loop, with_timeout(1h, read(server.endpoint())));     // half a minute of time-out passes at once
///     CHECK(loop.elapsed() == 30s);
///
/// Whatever a descriptor waits for must happen on this loop or in an announced operation: what takes another thread or
/// process longer than the grace is overtaken by the timers. Work takes no time: durations measured with the loop's
/// clock are sums of jumps. libcurl measures its connect time-out in real time: its timer brings the loop forward in
/// steps of that time-out until it has really passed, while nothing else happens. With a seed the ready queue is
/// shuffled, and a test that fails tells it: see virtual_loop. Concurrency, watches and file operations: see
/// event_loop.
class jumping_loop final : public epoll_loop {
 public:
  explicit jumping_loop(const jumping_loop_options& o = {}) : options_(o) { sample_account(1); }
  /// Shuffles the ready queue, reproducibly from `seed` as far as the kernel reports in the same order.
  explicit jumping_loop(std::uint64_t seed, const jumping_loop_options& o = {}) : options_(o), seed_(seed) {
    sample_account(1);
    ready_queue().shuffle(seed);
  }
  ~jumping_loop() override { shut_down(); }

  std::int64_t now_ns() const noexcept override { return now_; }
  duration elapsed() const noexcept { return duration(now_ - start); }
  /// "MILLRACE_SEED=42"; "" when nothing is shuffled.
  const std::string& seed_text() const noexcept { return seed_.text(); }
  /// Lets virtual time pass without running anything.
  void advance(duration d) noexcept { now_ += d.count(); }

 protected:
  MILLRACE_INLINE void poll(bool block, std::optional<time_point> deadline) override;

 private:
  /// Asks a second time, without waiting: this thread may have been kept from running while the time ran out.
  bool something_within(duration limit) { return wait(limit) || wait(duration(0)); }

  duration patience_without_timer() noexcept { return watches().live() == 0 ? options_.grace : options_.patience; }

  std::string reproach();

  static constexpr std::int64_t start = 1'000'000'000;  // not 0: code that treats 0 as "no time" must not pass by luck
  const jumping_loop_options options_;
  const detail::seed_note seed_;
  std::int64_t now_ = start;
};

}  // namespace millrace::testing

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/impl/jumping_loop.ipp>
#endif
