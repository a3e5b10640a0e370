// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loop/detail/descriptors.hpp>
#include <millrace/loop/detail/thread.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/timerfd.h>
#include <time.h>

#include "tests/loop/loops.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

class count_message final : public remote_node {
 public:
  explicit count_message(int& counter) : counter_(counter) {}

 private:
  void run() noexcept override { ++counter_; }
  int& counter_;
};

class probe_timer final : public timer_node {
 public:
  probe_timer(executor& ex, std::vector<int>& order, int id) : executor_(ex), order_(order), id_(id) {}
  time_point fired_at{};

 private:
  void fire() noexcept override {
    fired_at = executor_.now();
    order_.push_back(id_);
  }
  executor& executor_;
  std::vector<int>& order_;
  int id_;
};

class counting_watch final : public fd_watch {
 public:
  int calls = 0;

 private:
  void ready(unsigned) noexcept override { ++calls; }
};

std::int64_t thread_cpu_ns() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

/// Real time passes, measured by the kernel.
void let_pass_ms(long ms) {
  const detail::owned_fd timer(::timerfd_create(CLOCK_MONOTONIC, 0));
  itimerspec t{};
  t.it_value.tv_nsec = ms * 1000000;
  ::timerfd_settime(timer.get(), 0, &t, nullptr);
  std::uint64_t expirations;
  if (::read(timer.get(), &expirations, sizeof expirations) < 0) throw std::runtime_error("no timer");
}

TEST_CASE("messages from other threads arrive once each", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  constexpr int senders = 4;
  constexpr int each = 500;
  int arrived = 0;
  std::vector<std::unique_ptr<count_message>> messages;
  for (int i = 0; i < senders * each; ++i) messages.push_back(std::make_unique<count_message>(arrived));
  std::vector<std::thread> threads;
  for (int s = 0; s < senders; ++s) {
    threads.emplace_back([&, s] {
      for (int i = 0; i < each; ++i) loop.post_remote(*messages[static_cast<std::size_t>(s * each + i)]);
    });
  }
  loop.run_until([&] { return arrived == senders * each; });
  for (std::thread& t : threads) t.join();
}

TEST_CASE("every single message wakes a sleeping loop", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  const auto back = make_loop(loop_kind::epoll);
  int here = 0;
  int there = 0;
  constexpr int rounds = 300;
  count_message ping(there);
  count_message pong(here);
  std::thread other([&] {
    for (int i = 1; i <= rounds; ++i) {
      back->run_until([&] { return there == i; });
      loop.post_remote(pong);
    }
  });
  for (int i = 1; i <= rounds; ++i) {
    back->post_remote(ping);
    loop.run_until([&] { return here == i; });
  }
  other.join();
  CHECK(here == rounds);
}

TEST_CASE("a loop with nothing to do sleeps in the kernel", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  turns(loop, 3);
  int arrived = 0;
  count_message message(arrived);
  std::thread sender([&] {
    let_pass_ms(50);
    loop.post_remote(message);
  });
  int asked = 0;
  const std::int64_t before = thread_cpu_ns();
  loop.run_until([&] {
    ++asked;
    return arrived == 1;
  });
  const std::int64_t spent = thread_cpu_ns() - before;
  sender.join();
  CHECK(asked <= 8);
  CHECK(spent < 20 * 1000000);
}

TEST_CASE("timers fire in order and never early", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  std::vector<int> order;
  probe_timer a(loop, order, 1);
  probe_timer b(loop, order, 2);
  probe_timer c(loop, order, 3);
  probe_timer removed(loop, order, 4);
  const time_point start = loop.now();
  const duration ms(1000000);
  loop.add_timer(c, start + 9 * ms);
  loop.add_timer(a, start + 2 * ms);
  loop.add_timer(removed, start + 3 * ms);
  loop.add_timer(b, start + duration(2000001));
  loop.remove_timer(removed);
  loop.run_until([&] { return order.size() == 3; });
  CHECK(order == std::vector<int>{1, 2, 3});
  CHECK(a.fired_at >= start + 2 * ms);
  CHECK(b.fired_at > start + 2 * ms);
  CHECK(c.fired_at >= start + 9 * ms);
  CHECK(c.fired_at < start + duration(5000) * 1000000);
  CHECK(loop.timers() == 0);
}

TEST_CASE("a busy loop still serves timers, descriptors and messages", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  std::vector<int> order;
  probe_timer timer(loop, order, 1);
  loop.add_timer(timer, loop.now() + duration(1000000));
  const two_ends p;
  p.write();
  counting_watch w;
  loop.watch(w, p.in.get(), POLLIN);
  int arrived = 0;
  count_message message(arrived);
  loop.post_remote(message);
  bool stop = false;
  const auto spin = [&]() -> task<void> {
    while (!stop) co_await yield_now();
  };
  spawned<void> busy(loop, spin());
  loop.run_until([&] { return order.size() == 1 && w.calls > 0 && arrived == 1; });
  stop = true;
  loop.unwatch(w);
}

TEST_CASE("a loop goes on on another thread with everything that was watched", "[loop]") {
  MILLRACE_EACH_LOOP(loop);
  const two_ends p;
  counting_watch w;
  loop.watch(w, p.in.get(), POLLIN);
  const auto run_some = [&] {
    turns(loop, 3);
    const int before = w.calls;
    p.write();
    loop.run_until([&] { return w.calls > before; });
    char c;
    if (::read(p.in.get(), &c, 1) != 1) throw std::runtime_error("nothing to read");
    turns(loop, 3);
    std::vector<int> order;
    probe_timer timer(loop, order, 1);
    loop.add_timer(timer, loop.now() + duration(100000));
    loop.run_until([&] { return !order.empty(); });
  };
  for (int i = 0; i < 3; ++i) std::thread(run_some).join();
  run_some();
  std::thread([&] {
    turns(loop, 2);
    loop.unwatch(w);
  }).join();
}

TEST_CASE("a ring is refused on another thread while it reads, and goes on on its own", "[loop]") {
  const auto kind =
      GENERATE(test::loop_kind::deferred, test::loop_kind::cooperative, test::loop_kind::plain, test::loop_kind::tiny);
  INFO(test::name(kind));
  const auto loop = test::make_loop(kind);
  if (loop == nullptr) MILLRACE_SKIP(std::string("no ") + test::name(kind) + " here");
  class reading final : public file_operation {
   public:
    reading(const file_request& r, std::int64_t& to) noexcept : file_operation(r), result_(to) {}

   private:
    void complete(std::int64_t result) noexcept override {
      result_ = result;
      delete this;
    }
    std::int64_t& result_;
  };
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const detail::owned_fd in(ends[0]);
  const detail::owned_fd out(ends[1]);
  char c = 0;
  std::int64_t result = 0;
  file_request r;
  r.fd = in.get();
  r.data = &c;
  r.size = 1;
  loop->start(*new reading(r, result));
  turns(*loop, 2);
  CHECK(loop->operations() == 1);
  std::string said;
  std::thread([&] {
    try {
      turns(*loop, 2);
    } catch (const usage_error& e) {
      said = e.what();
    }
  }).join();
  CHECK(said == "an event loop changed threads while a file operation was under way");
  CHECK(result == 0);
  CHECK(::write(out.get(), "x", 1) == 1);
  loop->drain();
  CHECK(result == 1);
  CHECK(c == 'x');
  std::thread([&] { turns(*loop, 2); }).join();  // nothing is under way any more
}

TEST_CASE("a ring is given much of reading and writing before the turn ends, and little at its end", "[loop]") {
  const auto kind = GENERATE(test::loop_kind::deferred, test::loop_kind::cooperative, test::loop_kind::plain);
  INFO(test::name(kind));
  const auto loop = test::make_loop(kind);
  if (loop == nullptr) MILLRACE_SKIP(std::string("no ") + test::name(kind) + " here");
  class writing final : public file_operation {
   public:
    using file_operation::file_operation;

   private:
    void complete(std::int64_t) noexcept override { delete this; }
  };
  turns(*loop, 2);
  const std::string text(std::size_t(1) << 20, 'x');
  for (const std::size_t size : {std::size_t(1000), text.size()}) {
    INFO(size);
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const detail::owned_fd in(ends[0]);
    const detail::owned_fd out(ends[1]);
    file_request r;
    r.what = file_request::kind::write;
    r.fd = out.get();
    r.data = const_cast<char*>(text.data());
    r.size = size;
    const auto came = [&] {
      ::pollfd p{in.get(), POLLIN, 0};
      return ::poll(&p, 1, 0) == 1;
    };
    loop->start(*new writing(r));
    CHECK(came() == (size == text.size()));
    turns(*loop, 2);
    CHECK(came());
    std::string taken(text.size(), '\0');
    while (loop->operations() != 0) {  // a kernel that writes all of it waits for the reader
      if (came()) CHECK(::read(in.get(), taken.data(), taken.size()) > 0);
      turns(*loop, 1);
    }
  }
}

TEST_CASE("a turn of a ring passes on a MiB of what files have brought, and the next turn more", "[loop]") {
  const auto kind = GENERATE(test::loop_kind::deferred, test::loop_kind::cooperative, test::loop_kind::plain);
  INFO(test::name(kind));
  const auto loop = test::make_loop(kind);
  if (loop == nullptr) MILLRACE_SKIP(std::string("no ") + test::name(kind) + " here");
  static constexpr std::size_t size = std::size_t(1) << 20;
  static constexpr int reads = 6;
  class reading final : public file_operation {
   public:
    reading(const file_request& r, int& done) : file_operation(r), done_(done) {}

   private:
    void complete(std::int64_t result) noexcept override {
      if (result == std::int64_t(size)) ++done_;
      delete this;
    }
    int& done_;
  };
  turns(*loop, 2);
  const detail::owned_fd file(::memfd_create("read", MFD_CLOEXEC));
  REQUIRE(::ftruncate(file.get(), off_t(size) * reads) == 0);
  std::string text(size * reads, 'x');
  int done = 0;
  for (int i = 0; i < reads; ++i) {
    file_request r;
    r.fd = file.get();
    r.data = text.data() + size * std::size_t(i);
    r.size = size;
    r.offset = size * std::size_t(i);
    loop->start(*new reading(r, done));
  }
  int before = 0, most = 0;
  loop->run_until([&] {
    most = std::max(most, done - before);
    before = done;
    return loop->operations() == 0;
  });
  CHECK(done == reads);
  CHECK(most == 1);
  CHECK(text == std::string(text.size(), '\0'));
}

TEST_CASE("two loops know nothing of each other", "[loop]") {
  MILLRACE_EACH_LOOP(first);
  const auto second = make_loop(kind_of_loop);
  const auto work = [](event_loop& loop) {
    const two_ends p;
    counting_watch w;
    loop.watch(w, p.in.get(), POLLIN);
    for (int i = 0; i < 200; ++i) {
      p.write();
      const int before = w.calls;
      loop.run_until([&] { return w.calls > before; });
      char c;
      if (::read(p.in.get(), &c, 1) != 1) throw std::runtime_error("nothing to read");
    }
    loop.unwatch(w);
  };
  std::thread other([&] { work(*second); });
  work(first);
  other.join();
}

}  // namespace
