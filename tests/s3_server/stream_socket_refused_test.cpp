// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Sockets that the kernel does not let the loop watch.

#include <millrace/testing/s3_server/stream_socket.hpp>

#include <cerrno>
#include <string_view>
#include <vector>

#include <sys/epoll.h>

#include "tests/loop/loops.hpp"
#include "tests/loop/refuse_call.hpp"
#include "tests/s3_server/read_error.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

/// Writes more than the socket takes: 0 never, else the error.
task<int> write_for_ever(stream_socket& s) {
  try {
    const std::string text(1 << 20, 'x');
    const std::string_view pieces[] = {text};
    for (;;) co_await s.write_all(pieces);
  } catch (const io_error& e) {
    co_return e.code();
  }
}

TEST_CASE("a socket that the kernel refuses to watch fails its operations; others and timers go on", "[io]") {
  constexpr int sockets = 12;  // 8 of them find room in the tiny ring
  struct {
    bool ring = false;
    bool timer = false;
    int failed = 0;
    bool of_memory = true;
    int writer = 0;
    int reader_beside = 0;
    int ended = 0;
  } seen;
  const refused_call no_room_in_epoll{SYS_epoll_ctl, ENOSPC, EPOLL_CTL_ADD};
  const bool filtered = where_refused(no_room_in_epoll, [&] {
    const auto loop = make_loop(loop_kind::tiny);
    if (loop == nullptr) return;
    seen.ring = true;
    std::vector<stream_socket> ours;
    std::vector<stream_socket> peers;
    for (int i = 0; i < sockets + 1; ++i) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("no socket pair");
      ours.emplace_back(ends[0]);
      peers.emplace_back(ends[1]);
    }
    std::vector<spawned<int>> readings;
    for (int i = 0; i < sockets; ++i) readings.emplace_back(*loop, read_error(ours[static_cast<std::size_t>(i)]));
    struct alarm final : timer_node {
      void fire() noexcept override { fired = true; }
      bool fired = false;
    } timer;
    loop->add_timer(timer, loop->now());
    turns(*loop, 5);
    seen.timer = timer.fired;
    for (spawned<int>& r : readings) {
      if (!r.done()) continue;
      ++seen.failed;
      seen.of_memory = seen.of_memory && r.take() == ENOMEM;
    }

    // Both directions of one socket wait, and both learn of it.
    spawned<int> writing(*loop, write_for_ever(ours.back()));
    spawned<int> reading(*loop, read_error(ours.back()));
    turns(*loop, 5);
    if (writing.done()) seen.writer = writing.take();
    if (reading.done()) seen.reader_beside = reading.take();

    peers.clear();
    turns(*loop, 5);
    for (int i = 0; i < 8; ++i) {
      spawned<int>& r = readings[static_cast<std::size_t>(i)];
      loop->run_until([&] { return r.done(); });
      if (r.take() == 0) ++seen.ended;
    }
  });
  if (!filtered) MILLRACE_SKIP("no seccomp here");
  if (!seen.ring) MILLRACE_SKIP("no tiny ring here");
  CHECK(seen.timer);
  CHECK(seen.failed == sockets - 8);
  CHECK(seen.of_memory);
  CHECK(seen.writer == ENOMEM);
  CHECK(seen.reader_beside == ENOMEM);
  CHECK(seen.ended == 8);
}

}  // namespace
