// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/loop/epoll_loop.hpp>
#include <millrace/testing/virtual_loop.hpp>

namespace millrace::inline MILLRACE_ABI::testing {

/// How a jumping_loop decides that nothing happens any more. Both are real time.
struct jumping_loop_options {
  /// The kernel has been silent for that long: time jumps. Data between two sockets of one machine is there when the
  /// call that sends it returns, or soon after.
  duration grace = duration(1'000'000);
  /// How long an announced operation (a pool job, a file operation) may take, and, when no timer is armed, a descriptor
  /// stay silent, before that is a deadlock.
  duration patience = duration(10'000'000'000);
};

/// Virtual time over real descriptors: an event loop for tests of clients, servers and time-outs that must neither wait
/// nor depend on how fast the machine is. Time does not advance while anything happens: a coroutine is ready, a
/// descriptor has something to report, an operation of another thread is in flight. When all of that is over, the clock
/// jumps to the next timer. When there is no timer either, run_until() and block_on() throw `deadlock`, which names the
/// descriptors that are waited for.
///
///     testing::jumping_loop loop;
///     s3_server::server server;                                  // both sides live on this loop
///     const spawned<void> serving(loop, server.serve());
///     server.faults().add({}, fault::stall_head());
///     block_on(loop, with_timeout(1h, read(server.endpoint())));     // half a minute of time-out passes at once
///     CHECK(loop.elapsed() == 30s);
///
/// Whatever a descriptor waits for must happen on this loop or in an announced operation: if another thread or process
/// takes longer than the grace, timers fire first. Work takes no time: durations measured with the loop's clock are
/// sums of jumps. libcurl measures its connect time-out in real time: its timer brings the loop forward in steps of
/// that time-out until it has really passed, while nothing else happens. With a seed the ready queue is shuffled, and a
/// test that fails prints it: see virtual_loop. Concurrency, watches and file operations: see event_loop.
class jumping_loop final : public epoll_loop {
 public:
  explicit jumping_loop(const jumping_loop_options& o = {}) : options_(o) { sample_metrics(1); }
  /// Shuffles the ready queue, reproducibly from `seed` as far as the kernel reports in the same order.
  explicit jumping_loop(std::uint64_t seed, const jumping_loop_options& o = {}) : options_(o), seed_(seed) {
    sample_metrics(1);
    ready_queue().shuffle(seed);
  }
  ~jumping_loop() override { shut_down(); }

  std::int64_t now_ns() const noexcept override { return now_; }
  duration elapsed() const noexcept { return duration(now_ - start); }
  /// "MILLRACE_SEED=42"; "" when nothing is shuffled.
  const std::string& seed_text() const noexcept { return seed_.text(); }
  /// Lets virtual time pass without running anything.
  void advance(duration d) noexcept { now_ = millrace::detail::added(now(), d).time_since_epoch().count(); }

 protected:
  MILLRACE_INLINE void poll(bool block, std::optional<time_point> deadline) override;

 private:
  /// Polls a second time, without waiting: this thread may not have run while the time ran out.
  bool something_within(duration limit) { return wait(limit) || wait(duration(0)); }

  duration patience_without_timer() noexcept { return watches().live() == 0 ? options_.grace : options_.patience; }

  std::string reproach();

  static constexpr std::int64_t start = 1'000'000'000;  // not 0: code that treats 0 as "no time" must not pass by luck
  const jumping_loop_options options_;
  const detail::seed_note seed_;
  std::int64_t now_ = start;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline void jumping_loop::poll(bool block, std::optional<time_point> deadline) {
  if (!block || (deadline && *deadline <= now())) {
    epoll_loop::poll(false, std::nullopt);
  } else if (operations() > 0) {  // real time first, or a virtual time-out could overtake a real job
    if (!something_within(options_.patience))
      throw deadlock(seed_.added_to("an announced operation did not report back in time"));
  } else if (!something_within(deadline ? options_.grace : patience_without_timer())) {
    if (!deadline) throw deadlock(seed_.added_to(reproach().c_str()));
    now_ = std::max<std::int64_t>(now_, deadline->time_since_epoch().count());
  }
}

inline std::string jumping_loop::reproach() {
  std::string text = "nothing is ready, no timer is armed, and a coroutine still waits";
  const char* separator = ": for descriptor ";
  for (std::uint32_t i = 0; i < watches().size(); ++i) {
    const millrace::detail::watch_table::slot& s = watches().at(i);
    if (s.owner == nullptr) continue;
    text += separator + std::to_string(s.fd);
    if (s.events & POLLIN) text += " to be readable";
    if (s.events & POLLOUT) text += s.events & POLLIN ? " or writable" : " to be writable";
    separator = ", ";
  }
  return text;
}

}  // namespace millrace::testing
