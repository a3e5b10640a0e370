// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Watches beyond the ring's share of polls go into an epoll set: what happens when there is none to be had.

#include <millrace/loop/ring_loop.hpp>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>

#include "tests/loop/loops.hpp"
#include "tests/loop/refuse_call.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

constexpr refused_call no_epoll_set{SYS_epoll_create1, EMFILE};

detail::owned_fd new_event() { return detail::owned_fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

class counting_watch final : public fd_watch {
 public:
  int calls = 0;
  unsigned events = 0;

 private:
  void ready(unsigned poll_events) noexcept override {
    ++calls;
    events = poll_events;
  }
};

/// Asks again whenever it is refused, up to a number of times.
class stubborn_watch final : public fd_watch {
 public:
  stubborn_watch(event_loop& loop, int fd, int patience) noexcept : loop_(loop), fd_(fd), patience_(patience) {}
  int calls = 0;

 private:
  void ready(unsigned) noexcept override {
    if (++calls < patience_) loop_.watch(*this, fd_, POLLIN);
  }
  event_loop& loop_;
  const int fd_;
  const int patience_;
};

struct alarm final : timer_node {
  void fire() noexcept override { fired = true; }
  bool fired = false;
};

/// Fills the tiny ring's share of polls, 8 of 16, with watches of events that do not come.
struct full_share {
  explicit full_share(event_loop& l) : loop(l), watches(8) {
    for (counting_watch& w : watches) {
      events.push_back(new_event());
      loop.watch(w, events.back().get(), POLLIN);
    }
  }
  ~full_share() {
    for (counting_watch& w : watches) loop.unwatch(w);
  }
  event_loop& loop;
  std::vector<counting_watch> watches;
  std::vector<detail::owned_fd> events;
};

TEST_CASE("a watch for which there is no descriptor left is refused alone: the loop goes on", "[loop]") {
  struct {
    bool ring = false;
    int refused[4]{};
    unsigned events[4]{};
    bool timer = false;
    int others = 0;
    int told = 0;
    unsigned told_events = 0;
    int again = 0;
    unsigned again_events = 0;
  } seen;
  const bool filtered = where_refused(no_epoll_set, [&] {
    const auto loop = make_loop(loop_kind::tiny);
    if (loop == nullptr) return;
    seen.ring = true;
    full_share polled(*loop);
    std::vector<detail::owned_fd> events;
    std::vector<counting_watch> watches(4);
    for (counting_watch& w : watches) {
      events.push_back(new_event());
      loop->watch(w, events.back().get(), POLLIN);
    }
    alarm timer;
    loop->add_timer(timer, loop->now());
    turns(*loop, 5);
    seen.timer = timer.fired;
    for (std::size_t i = 0; i < watches.size(); ++i) {
      seen.refused[i] = watches[i].calls;
      seen.events[i] = watches[i].events;
    }
    for (const counting_watch& w : polled.watches) seen.others += w.calls;

    // Those that found room are notified as before.
    ::eventfd_write(polled.events[7].get(), 1);
    loop->run_until([&] { return polled.watches[7].calls > 0; });
    seen.told = polled.watches[7].calls;
    seen.told_events = polled.watches[7].events;
    // And where there is room again, the one that was refused gets it.
    loop->unwatch(polled.watches[7]);
    turns(*loop, 5);
    loop->watch(watches[0], events[0].get(), POLLIN);
    ::eventfd_write(events[0].get(), 1);
    const int before = watches[0].calls;
    loop->run_until([&] { return watches[0].calls > before; });
    seen.again = watches[0].calls - before;
    seen.again_events = watches[0].events;
    for (counting_watch& w : watches) loop->unwatch(w);
  });
  if (!filtered) MILLRACE_SKIP("no seccomp here");
  if (!seen.ring) MILLRACE_SKIP("no tiny ring here");
  for (int i = 0; i < 4; ++i) {
    CHECK(seen.refused[i] == 1);
    CHECK(seen.events[i] == POLLNVAL);
  }
  CHECK(seen.timer);
  CHECK(seen.others == 0);
  CHECK(seen.told == 1);
  CHECK(seen.told_events == POLLIN);
  CHECK(seen.again == 1);
  CHECK(seen.again_events == POLLIN);
}

/// Calls look(loop, watch) with a watch that the loop refuses and that asks again `patience - 1` times. Null, or why it
/// could not be tried.
template <class Look>
const char* with_refused_watch(int patience, Look look) {
  bool ring = false;
  const bool filtered = where_refused(no_epoll_set, [&] {
    const auto loop = make_loop(loop_kind::tiny);
    if (loop == nullptr) return;
    ring = true;
    full_share polled(*loop);
    const detail::owned_fd event = new_event();
    stubborn_watch w(*loop, event.get(), patience);
    loop->watch(w, event.get(), POLLIN);
    look(*loop, w);
    loop->unwatch(w);
  });
  if (!filtered) return "no seccomp here";
  return ring ? nullptr : "no tiny ring here";
}

TEST_CASE("a watch that is refused and asks again gets one answer per turn", "[loop]") {
  bool fired = false;
  int after_one = 0;
  int calls = 0;
  constexpr int patience = 1000;  // an end also for a loop that would never leave its turn
  const char* const untried = with_refused_watch(patience, [&](event_loop& loop, stubborn_watch& w) {
    alarm timer;
    loop.add_timer(timer, loop.now());
    turns(loop, 1);
    after_one = w.calls;
    turns(loop, 5);
    calls = w.calls;
    fired = timer.fired;
  });
  if (untried != nullptr) MILLRACE_SKIP(untried);
  CHECK(after_one == 1);
  CHECK(fired);
  CHECK(calls > 1);
  CHECK(calls <= 7);
}

TEST_CASE("a loop does not sleep while a watch that was refused has asked again", "[loop]") {
  bool slept = false;
  int calls = 0;
  const char* const untried = with_refused_watch(3, [&](event_loop& loop, stubborn_watch& w) {
    // Nothing else is ready. The timer is there to end a loop that sleeps, and for nothing else.
    alarm too_late;
    const time_point began = loop.now();
    loop.add_timer(too_late, began + std::chrono::seconds(60));
    loop.run_until([&] { return w.calls == 3 || too_late.fired; });
    slept = too_late.fired || loop.now() >= began + std::chrono::seconds(60);
    calls = w.calls;
    loop.remove_timer(too_late);
  });
  if (untried != nullptr) MILLRACE_SKIP(untried);
  CHECK_FALSE(slept);
  CHECK(calls == 3);
}

}  // namespace
