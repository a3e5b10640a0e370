// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What a child of fork() does with the objects of its parent: it gets an error, its destructors return, and the
// parent's loops, connections and runs stay as they are.

#include <millrace/loader/run.hpp>

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/file.hpp>
#include <millrace/io/run_on.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/epoll_loop.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;

#if MILLRACE_TSAN
// Unless told so, ThreadSanitizer ends a child of fork() that starts threads, where the parent has some.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace {

/// Whether a thread of this process but the calling one runs now.
bool others_run() {
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    if (thread.path().filename() == std::to_string(::gettid())) continue;
    std::ifstream stat(thread.path() / "stat");
    std::string text;
    std::getline(stat, text);
    const std::size_t name_ends = text.rfind(") ");
    if (name_ends != std::string::npos && text[name_ends + 2] == 'R') return true;
  }
  return false;
}

/// Runs `f` in a child process, which ends without destructors: the code that f returns, or -1 where it does not end.
int in_child(const std::function<int()>& f) {
  // The allocator of address sanitizers does not know of fork(): what another thread has locked stays so in the child.
  for (int i = 0; i < 10000 && others_run(); ++i) ::sched_yield();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // a child that hangs is killed
    int code = 99;
    try {
      code = f();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -2;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Whether it is a usage_error that says why.
template <class F>
bool is_refused(F f) {
  try {
    f();
  } catch (const usage_error& e) {
    return std::strstr(e.what(), "fork()") != nullptr;
  }
  return false;
}

async_generator<int> slow_numbers() {
  for (int i = 0; i < 50; ++i) {
    co_await sleep_for(std::chrono::milliseconds(1));
    int value = i;
    co_yield give(value);
  }
}

struct row {
  explicit row(int i) : id(i) {}
  std::int64_t id;
};
void collate(const row& r, sample_writer& out) { out.write("id", r.id); }

task<int> one() { co_return 1; }

s3::client client_of(const s3_server::background& server) {
  s3::config_options o;
  o.endpoint = server.endpoint();
  o.region = "us-east-1";
  return s3::client(s3::config(o), s3::credentials("test-key", "test-secret"));
}

}  // namespace

TEST_CASE("a child that uses its parent's runtime, or a run of it, gets an error") {
  for (const bool epoll : {false, true}) {
    runtime rt({.loops = 2, .threads = 1, .force_epoll = epoll});
    rt.pool();
    auto run = rt.run(slow_numbers(), {.prefetch = 1});
    REQUIRE(run.next() == 0);
    CHECK(in_child([&] {
            int told = 0;
            told += is_refused([&] { static_cast<void>(rt.run(iota(3))); });
            told += is_refused([&] { rt.pool(); });
            told += is_refused([&] { rt.free_device_slots(); });
            told += is_refused([&] { run.next(); });
            told += is_refused([&] { run.begin(); });
            told += is_refused([&] { static_cast<void>(run.state()); });
            told += is_refused([&] { static_cast<void>(run.stats()); });
            told += is_refused([&] { static_cast<void>(run.batches()); });
            return told;
          }) == 8);
    int next = 1;
    for (const int i : run) CHECK(i == next++);
    CHECK(next == 50);
  }
}

TEST_CASE("a child that leaves its parent's runtime and runs comes out") {
  for (const bool epoll : {false, true}) {
    for (const int order : {0, 1, 2}) {
      auto rt = std::make_unique<runtime>(runtime_options{.loops = 2, .threads = 1, .force_epoll = epoll});
      rt->pool();
      auto left = std::make_unique<pipeline_run<int>>(rt->run(slow_numbers(), {.prefetch = 1}));
      REQUIRE(left->next() == 0);
      CHECK(in_child([&] {
              if (order == 0) rt.reset();
              if (order == 2) left->stop();
              left.reset();
              rt.reset();
              return 5;
            }) == 5);
      int next = 1;
      for (const int i : *left) CHECK(i == next++);
      CHECK(next == 50);
    }
  }
  auto own = std::make_unique<pipeline_run<int>>(run(slow_numbers()));
  REQUIRE(own->next() == 0);
  CHECK(in_child([&] {
          own.reset();
          return 5;
        }) == 5);
  CHECK(own->next() == 1);
}

TEST_CASE("a child that has a batch of its parent's drops it, and the parent goes on") {
  runtime rt({.threads = 1});
  const auto rows = [](int i) { return row(i); };
  auto run = rt.run(iota(12) | map(rows) | batch(2) | to_device(host_device(), {.slots = 2}), {.prefetch = 1});
  std::optional<device_batch> b = run.next();
  REQUIRE(b);
  CHECK(in_child([&] {
          b.reset();
          return 5;
        }) == 5);
  b.reset();
  int more = 0;
  while (run.next()) ++more;
  CHECK(more == 5);
}

TEST_CASE("a child that uses its parent's pool or loop gets an error, and has its own") {
  cpu_pool pool(2);
  for (const bool epoll : {false, true}) {
    const std::unique_ptr<event_loop> loop = make_event_loop({.force_epoll = epoll});
    CHECK(block_on(*loop, one()) == 1);
    const auto away = [&]() -> task<int> {
      auto there = run_on(*loop, [] { return one(); });
      co_return co_await std::move(there);
    };
    const auto on_pool = [&]() -> task<int> {
      auto job = pool.run([] { return 1; });
      co_return co_await std::move(job);
    };
    CHECK(in_child([&] {
            int told = is_refused([&] { block_on(*loop, one()); });
            epoll_loop own;
            told += is_refused([&] { block_on(own, away()); });
            told += is_refused([&] { block_on(own, on_pool()); });
            cpu_pool its(1);
            const auto job = [](std::int64_t i) { return i + 1; };
            auto r = run(iota(5) | map_concurrent(job, {.on = its}), {.show = progress::off});
            int sum = 0;
            while (const std::optional<std::int64_t> i = r.next()) sum += static_cast<int>(*i);
            return told == 3 && sum == 15 ? 5 : told;
          }) == 5);
    CHECK(block_on(*loop, on_pool()) == 1);
  }
  std::unique_ptr<event_loop> with_files = make_event_loop({.force_epoll = true});
  const auto read_file = []() -> task<int> {
    file f = co_await file::open("/proc/self/stat");
    co_return 1;
  };
  CHECK(block_on(*with_files, read_file()) == 1);  // there is a thread for files now
  CHECK(in_child([&] {
          with_files.reset();
          return 5;
        }) == 5);
  auto dropped = std::make_unique<cpu_pool>(2);
  CHECK(in_child([&] {
          dropped.reset();
          return 5;
        }) == 5);
}

TEST_CASE("a loop that a child drops leaves the parent's connections alone") {
  s3_server::background server;
  server.put("b", "k", std::string(100'000, 'x'));
  for (const bool epoll : {false, true}) {
    std::unique_ptr<event_loop> loop = make_event_loop({.force_epoll = epoll});
    const s3::client client = client_of(server);
    const auto get = [&] { return block_on(*loop, client.read("s3://b/k")).size(); };
    CHECK(get() == 100'000);
    const std::uint64_t connections = server.stats().connections.load();
    CHECK(in_child([&] {
            loop.reset();
            return 5;
          }) == 5);
    CHECK(get() == 100'000);
    CHECK(server.stats().connections.load() == connections);

    // In the middle of a transfer, with what waits for it.
    const auto reading = [](s3::client from) -> task<std::size_t> {
      const bytes got = co_await from.read("s3://b/k");
      co_return got.size();
    };
    spawned<std::size_t> middle(*loop, reading(client));
    int turns = 0;
    loop->run_until([&] { return ++turns > 3; });
    CHECK(in_child([&] {
            middle = spawned<std::size_t>();
            loop.reset();
            return 5;
          }) == 5);
    loop->run_until([&] { return middle.done(); });
    CHECK(std::move(middle).take() == 100'000);
  }
}

TEST_CASE("a program that forks before it makes a runtime has one in the child") {
  CHECK(in_child([] {
          runtime rt({.threads = 1});
          const auto job = [](std::int64_t i) { return 2 * i; };
          auto r = rt.run(iota(10) | map_concurrent(job), {.show = progress::off});
          int sum = 0;
          while (const std::optional<std::int64_t> i = r.next()) sum += static_cast<int>(*i);
          return sum;
        }) == 90);
}

TEST_CASE("no descriptor of a runtime survives exec()") {
  const auto open = [] {
    std::set<int> found;
    for (int fd = 0; fd < 512; ++fd) {
      if (::fcntl(fd, F_GETFD) >= 0) found.insert(fd);
    }
    return found;
  };
  s3_server::background server;
  server.put("b", "k", "text");
  for (const bool epoll : {false, true}) {
    const std::set<int> before = open();
    const std::unique_ptr<event_loop> loop = make_event_loop({.force_epoll = epoll});
    runtime rt({.loops = 2, .threads = 2, .force_epoll = epoll});
    CHECK(block_on(*loop, client_of(server).read("s3://b/k")).size() == 4);
    std::size_t own = 0;
    for (const int fd : open()) {
      if (before.count(fd) != 0) continue;
      int family = 0;
      socklen_t size = sizeof family;
      // libcurl's own pair to wake curl_multi_poll(), which the library does not call: no way to it before 8.x.
      if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_UNIX) continue;
      INFO("descriptor " << fd);
      CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
      ++own;
    }
    CHECK(own >= 6);
  }
}
