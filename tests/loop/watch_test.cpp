// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loop/detail/descriptors.hpp>
#include <millrace/loop/event_loop.hpp>
#include <millrace/loop/ring_loop.hpp>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "tests/loop/loops.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

/// Counts calls, and does something else in them.
class probe final : public fd_watch {
 public:
  template <class F>
  void on_ready(F f) {
    action_ = std::make_unique<action<F>>(std::move(f));
  }
  int calls = 0;
  unsigned events = 0;

 private:
  struct action_base {
    virtual ~action_base() = default;
    virtual void run() = 0;
  };
  template <class F>
  struct action final : action_base {
    explicit action(F f) : function(std::move(f)) {}
    void run() override { function(); }
    F function;
  };
  void ready(unsigned poll_events) noexcept override {
    ++calls;
    events = poll_events;
    if (action_) action_->run();
  }
  std::unique_ptr<action_base> action_;
};

int read_one(int fd) {
  char c;
  return ::read(fd, &c, 1) == 1 ? c : -1;
}

TEST_CASE("a watch is notified once per turn for as long as there is something", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  const two_ends p;
  probe w;
  loop.watch(w, p.in.get(), POLLIN);
  turns(loop, 3);
  CHECK(w.calls == 0);
  p.write("ab");
  loop.run_until([&] { return w.calls == 3; });  // nothing was read
  CHECK((w.events & POLLIN) != 0);
  w.on_ready([&] { read_one(p.in.get()); });
  loop.run_until([&] { return w.calls == 5; });
  turns(loop, 5);
  CHECK(w.calls == 5);
  p.write("c");
  loop.run_until([&] { return w.calls == 6; });
  loop.unwatch(w);
  CHECK_FALSE(w.watched());
  loop.unwatch(w);
  p.write("d");
  turns(loop, 5);
  CHECK(w.calls == 6);
}

TEST_CASE("what is watched can change at any time", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  const two_ends p;
  const two_ends other;
  probe w;
  loop.watch(w, p.out.get(), POLLIN);  // never
  turns(loop, 3);
  loop.watch(w, p.out.get(), POLLOUT);
  loop.run_until([&] { return w.calls == 2; });
  CHECK((w.events & POLLOUT) != 0);
  loop.watch(w, p.out.get(), 0);
  turns(loop, 5);
  CHECK(w.calls == 2);
  loop.watch(w, other.in.get(), POLLIN);  // another descriptor
  turns(loop, 3);
  CHECK(w.calls == 2);
  other.write();
  loop.run_until([&] { return w.calls == 3; });
  CHECK((w.events & POLLIN) != 0);
  loop.unwatch(w);
}

TEST_CASE("the end of the other side is always reported", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  two_ends p;
  probe w;
  loop.watch(w, p.in.get(), 0);
  turns(loop, 3);
  CHECK(w.calls == 0);
  p.out = detail::owned_fd();
  loop.run_until([&] { return w.calls == 1; });
  CHECK((w.events & POLLHUP) != 0);
  loop.unwatch(w);
}

TEST_CASE("callbacks may watch, unwatch and destroy others of the same turn", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  const two_ends p[2];
  probe w[2];
  probe late;
  const two_ends q;
  for (int i : {0, 1}) {
    w[i].on_ready([&, i] {
      loop.unwatch(w[1 - i]);  // the other one, which is ready too, must not be called
      loop.watch(late, q.in.get(), POLLIN);
      loop.unwatch(w[i]);
    });
    loop.watch(w[i], p[i].in.get(), POLLIN);
  }
  turns(loop, 2);
  for (const two_ends& e : p) e.write();
  q.write();
  loop.run_until([&] { return late.calls > 0; });
  CHECK(w[0].calls + w[1].calls == 1);
  loop.unwatch(late);
  for (const probe& each : w) CHECK_FALSE(each.watched());
}

TEST_CASE("a descriptor whose number comes back gets nothing meant for the former one", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  for (int round = 0; round < 50; ++round) {
    auto former = std::make_unique<two_ends>();
    const detail::owned_fd still_open(::dup(former->in.get()));  // keeps the former file, and a poll on it, alive
    const int number = former->in.get();
    probe old_watch;
    loop.watch(old_watch, number, POLLIN);
    turns(loop, 1 + round % 3);  // the poll is in the kernel
    if (round % 2 == 0) former->write();
    loop.unwatch(old_watch);
    two_ends fresh;
    const int end = fresh.in.release();
    REQUIRE(::dup2(end, number) == number);  // closes the former
    former->in.release();
    fresh.in = detail::owned_fd(number);
    ::close(end);
    probe new_watch;
    loop.watch(new_watch, number, POLLIN);
    if (round % 2 == 1) former->write();
    turns(loop, 4);
    CHECK(old_watch.calls == 0);
    CHECK(new_watch.calls == 0);
    fresh.write();
    loop.run_until([&] { return new_watch.calls == 1; });
    loop.unwatch(new_watch);
  }
}

TEST_CASE("a watch whose descriptor was closed takes nothing from the watch that has its number now", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  const two_ends quiet[8];  // as many as the tiny ring polls itself: the others are in its epoll set
  probe others[8];
  for (std::size_t i = 0; i < 8; ++i) loop.watch(others[i], quiet[i].in.get(), POLLIN);
  two_ends former;
  two_ends fresh;
  const int number = former.in.get();
  probe stale;
  loop.watch(stale, number, POLLIN);
  turns(loop, 3);
  REQUIRE(::dup2(fresh.in.get(), number) == number);  // closes the former while it is watched
  probe current;
  loop.watch(current, number, POLLIN);
  turns(loop, 3);
  bool ended = false;
  SECTION("when it ends") {
    loop.unwatch(stale);
    ended = true;
  }
  SECTION("when it changes") {
    try {
      loop.watch(stale, number, POLLIN | POLLOUT);
    } catch (const io_error& e) {  // at the back end's choice
      CHECK(e.code() == std::errc::file_exists);
    }
    turns(loop, 3);
  }
  fresh.write();
  struct alarm final : timer_node {
    void fire() noexcept override { fired = true; }
    bool fired = false;
  } too_late;
  loop.add_timer(too_late, loop.now() + std::chrono::seconds(5));
  loop.run_until([&] { return current.calls > 0 || too_late.fired; });
  CHECK(current.calls > 0);
  CHECK((current.events & POLLIN) != 0);
  if (ended) CHECK(stale.calls == 0);
  loop.remove_timer(too_late);
  loop.unwatch(stale);
  loop.unwatch(current);
  for (probe& w : others) loop.unwatch(w);
}

TEST_CASE("a watch moves to a new descriptor of the same number inside its callback", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  two_ends first;
  first.write();
  two_ends second;
  probe w;
  w.on_ready([&] {
    if (w.calls != 1) return;
    const int number = first.in.get();
    loop.unwatch(w);
    ::dup2(second.in.get(), number);
    loop.watch(w, number, POLLIN);
  });
  loop.watch(w, first.in.get(), POLLIN);
  loop.run_until([&] { return w.calls == 1; });
  turns(loop, 4);
  CHECK(w.calls == 1);
  second.write();
  loop.run_until([&] { return w.calls == 2; });
  loop.unwatch(w);
}

TEST_CASE("a watch that ends leaves no poll in the kernel", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  auto* ring = dynamic_cast<ring_loop*>(&loop);
  if (ring == nullptr) return;
  turns(loop, 2);
  const std::size_t alone = ring->under_way();
  for (int i = 0; i < 20; ++i) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const detail::owned_fd here(ends[0]);
    const detail::owned_fd there(ends[1]);
    probe w;
    loop.watch(w, here.get(), POLLIN);
    turns(loop, 2);
    REQUIRE(::write(there.get(), "x", 1) == 1);  // the kernel wakes the poll, which finds nothing when it gets to look
    REQUIRE(read_one(here.get()) == 'x');
    if (i % 2 == 0) loop.watch(w, here.get(), POLLPRI);
    loop.unwatch(w);
    turns(loop, 4);
    CHECK(ring->under_way() == alone);
  }
}

TEST_CASE("thousands of watches fit a ring of any size", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  rlimit limit;
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const std::size_t count = limit.rlim_cur > 6000 ? 5000 : 500;
  std::vector<detail::owned_fd> fds;
  std::vector<std::unique_ptr<probe>> watches;
  std::size_t told = 0;
  for (std::size_t i = 0; i < count; ++i) {
    fds.emplace_back(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    REQUIRE(fds.back().get() >= 0);
    watches.push_back(std::make_unique<probe>());
    probe* w = watches.back().get();
    const int fd = fds.back().get();
    w->on_ready([&told, fd] {
      std::uint64_t value;
      if (::read(fd, &value, sizeof value) == sizeof value) ++told;
    });
    loop.watch(*w, fd, POLLIN);
  }
  turns(loop, 3);
  CHECK(told == 0);
  const auto signal = [&](std::size_t i) {
    const std::uint64_t one = 1;
    REQUIRE(::write(fds[i].get(), &one, sizeof one) == sizeof one);
  };
  signal(count - 1);
  loop.run_until([&] { return told == 1; });
  for (std::size_t i = 0; i < count; ++i) signal(i);
  loop.run_until([&] { return told == 1 + count; });
  // Half of them leave, change or stay, and everything again.
  for (std::size_t i = 0; i < count; i += 2) loop.unwatch(*watches[i]);
  for (std::size_t i = 0; i < count; i += 4) loop.watch(*watches[i], fds[i].get(), POLLIN);
  for (std::size_t i = 1; i < count; i += 4) loop.watch(*watches[i], fds[i].get(), 0);
  for (std::size_t i = 0; i < count; ++i) signal(i);
  std::size_t expected = 0;
  for (std::size_t i = 0; i < count; ++i) expected += i % 4 == 0 || i % 4 == 3 ? 1 : 0;
  loop.run_until([&] { return told == 1 + count + expected; });
  turns(loop, 5);
  CHECK(told == 1 + count + expected);
  if (auto* ring = dynamic_cast<ring_loop*>(&loop)) {
    CHECK(ring->overflows() == 0);
    CHECK(ring->under_way() <= ring->capacity());
  }
  for (auto& w : watches) loop.unwatch(*w);
}

TEST_CASE("polls that end together are cancelled as there is room for the completions", "[loop]") {
  const auto loop = make_loop(loop_kind::tiny);
  auto* ring = dynamic_cast<ring_loop*>(loop.get());
  if (ring == nullptr) MILLRACE_SKIP("no ring here");
  turns(*loop, 2);
  const std::size_t alone = ring->under_way();
  std::vector<two_ends> pipes(8);  // all of the share of polls, half of the ring
  std::vector<probe> watches(8);
  for (std::size_t i = 0; i < 8; ++i) loop->watch(watches[i], pipes[i].in.get(), POLLIN);
  turns(*loop, 2);
  REQUIRE(ring->under_way() == alone + 8);
  for (probe& w : watches) loop->unwatch(w);
  // A poll and its cancellation complete each: all at once, beside the wake-up, would be one more than there is room
  // for.
  std::size_t left = ring->under_way();
  int taken = 0;
  for (; left > alone && taken < 100; ++taken) {
    turns(*loop, 1);
    const std::size_t now = ring->under_way();
    CHECK(left - now <= 4);
    left = now;
  }
  CHECK(left == alone);
  CHECK(taken > 1);
}

TEST_CASE("a descriptor that cannot be polled is refused or reported once", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  int closed;
  {
    const two_ends p;
    closed = p.in.get();
  }
  probe w;
  try {
    loop.watch(w, closed, POLLIN);
    turns(loop, 6);
    CHECK(w.calls == 1);
    CHECK(w.events == POLLNVAL);
    CHECK(w.watched());
    const two_ends p;  // the watch itself is still good
    loop.watch(w, p.in.get(), POLLIN);
    p.write();
    loop.run_until([&] { return w.calls == 2; });
    CHECK((w.events & POLLIN) != 0);
    loop.unwatch(w);
  } catch (const io_error& e) {
    CHECK(e.code() == std::errc::bad_file_descriptor);
    CHECK_FALSE(w.watched());
  }
}

TEST_CASE("a watch gone from a loop that ends lets go of its descriptor", "[loop]") {
  for (const loop_kind kind : {loop_kind::deferred, loop_kind::plain, loop_kind::epoll}) {
    two_ends p;
    {
      const auto loop = make_loop(kind);
      if (loop == nullptr) continue;
      probe w;
      loop->watch(w, p.in.get(), POLLIN);
      turns(*loop, 3);
      loop->unwatch(w);
    }
    p.in = detail::owned_fd();
    struct pollfd writer {
      p.out.get(), 0, 0
    };
    CHECK(::poll(&writer, 1, 0) == 1);  // no hidden reader is left
    CHECK((writer.revents & POLLERR) != 0);
  }
}

TEST_CASE("only an event loop is an event loop", "[loop]") {
  class other final : public executor {
    void poll(bool, std::optional<time_point>) override {}
    void wake() noexcept override {}
  } ex;
  CHECK_THROWS_AS(event_loop::of(ex), configuration_error);
  MILLRACE_EACH_LOOP(loop);
  CHECK(&event_loop::of(loop) == &loop);
}

TEST_CASE("a watch of another loop is refused, and stays where it is", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  const std::unique_ptr<event_loop> other = make_loop(kind_of_loop);
  const two_ends p;
  probe w;
  loop.watch(w, p.in.get(), POLLIN);
  CHECK_THROWS_AS(other->watch(w, p.in.get(), POLLIN), usage_error);
  p.write();
  loop.run_until([&] { return w.calls == 1; });
  loop.unwatch(w);
}

}  // namespace
