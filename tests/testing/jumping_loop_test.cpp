// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/jumping_loop.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include <millrace/coro/block_on.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/io/file.hpp>
#include <millrace/testing/s3_server/stream_socket.hpp>
#include <millrace/io/timeout.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace std::chrono_literals;
using mill::testing::deadlock;
using mill::testing::jumping_loop;

namespace {

/// Two sockets whose data is there when the call that sends it returns.
class connected {
 public:
  connected() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    here = mill::s3_server::stream_socket(ends[0]);
    there = mill::s3_server::stream_socket(ends[1]);
  }
  mill::s3_server::stream_socket here;
  mill::s3_server::stream_socket there;
};

mill::task<void> sleep_long(mill::duration d) { co_await mill::sleep_for(d); }

mill::task<std::string> read_all(mill::s3_server::stream_socket& s) {
  std::string text;
  char memory[1000];
  for (;;) {
    const std::size_t n = co_await s.read_some(memory);
    if (n == 0) co_return text;
    text.append(memory, n);
  }
}

mill::task<void> write_after(mill::s3_server::stream_socket& s, mill::duration pause, const std::string& text) {
  co_await mill::sleep_for(pause);
  const std::string_view pieces[] = {text};
  co_await s.write_all(pieces);
  s.shutdown_write();
}

TEST_CASE("unused time is skipped") {
  jumping_loop loop;
  CHECK(loop.elapsed() == 0s);
  mill::block_on(loop, sleep_long(30s));
  CHECK(loop.elapsed() == 30s);
  mill::block_on(loop, sleep_long(100'000h));
  CHECK(loop.elapsed() == 30s + 100'000h);
  loop.advance(1ms);
  CHECK(loop.elapsed() == 30s + 100'000h + 1ms);
}

TEST_CASE("a descriptor that is ready goes before a timer") {
  jumping_loop loop({.grace = 0s});
  connected c;
  const std::string text = "at once";
  const mill::spawned<void> writing(loop, write_after(c.there, 0s, text));
  CHECK(mill::block_on(loop, mill::with_timeout(1ms, read_all(c.here))) == text);
  CHECK(loop.elapsed() == 0s);
}

TEST_CASE("what a timer brings about is there at its time, and a time-out at its own") {
  jumping_loop loop;
  connected c;
  const std::string text = "late";
  const mill::spawned<void> writing(loop, write_after(c.there, 2h, text));
  CHECK_THROWS_AS(mill::block_on(loop, mill::with_timeout(1h, read_all(c.here))), mill::timeout_error);
  CHECK(loop.elapsed() == 1h);
  CHECK(mill::block_on(loop, mill::with_timeout(24h, read_all(c.here))) == text);
  CHECK(loop.elapsed() == 2h);
}

TEST_CASE("time stands still while data is under way") {
  jumping_loop loop({.grace = 0s});
  connected c;
  const std::string text(5'000'000, 'x');  // many times what the sockets hold
  const mill::spawned<void> writing(loop, write_after(c.there, 1s, text));
  const std::string read = mill::block_on(loop, mill::with_timeout(1001ms, read_all(c.here)));
  const bool equal = read == text;
  CHECK(equal);
  CHECK(loop.elapsed() == 1s);
}

TEST_CASE("a job on a pool goes before a timer, however long it takes") {
  jumping_loop loop({.grace = 0s});
  mill::cpu_pool pool(1);
  const auto work = [] {
    const std::int64_t begun = mill::monotonic_ns();
    while (mill::monotonic_ns() - begun < 3'000'000) continue;
    return 7;
  };
  const auto job = [](mill::cpu_pool& p, auto f) -> mill::task<int> { co_return co_await p.run(f); };
  CHECK(mill::block_on(loop, mill::with_timeout(1ns, job(pool, work))) == 7);
  CHECK(loop.elapsed() == 0s);
}

TEST_CASE("so does a file operation") {
  jumping_loop loop({.grace = 0s});
  const auto open = []() -> mill::task<bool> {
    mill::file f = co_await mill::file::open("/proc/self/status");
    co_await f.close();
    co_return true;
  };
  CHECK(mill::block_on(loop, mill::with_timeout(1ns, open())));
  CHECK(loop.elapsed() == 0s);
}

TEST_CASE("waiting for nothing is a deadlock that names the descriptors") {
  jumping_loop loop({.patience = 5ms});
  connected c;
  std::string said;
  try {
    mill::block_on(loop, read_all(c.here));
  } catch (const deadlock& e) {
    said = e.what();
  }
  CHECK(said.find("for descriptor " + std::to_string(c.here.fd()) + " to be readable") != std::string::npos);
  CHECK(said.find(std::to_string(c.there.fd()) + " to be") == std::string::npos);

  const auto hang = []() -> mill::task<void> {
    mill::event never;
    co_await never.wait();
  };
  CHECK_THROWS_AS(mill::block_on(loop, hang()), deadlock);
  CHECK(loop.elapsed() == 0s);
  CHECK(loop.frames() == 0);
}

TEST_CASE("a seed decides the order of what is ready") {
  const auto order_of = [](auto&&... seed) {
    jumping_loop loop(seed...);
    std::vector<int> order;
    const auto note = [](std::vector<int>& list, int n) -> mill::task<void> {
      list.push_back(n);
      co_return;
    };
    std::vector<mill::spawned<void>> running;
    for (int i = 0; i < 20; ++i) running.emplace_back(loop, note(order, i));
    loop.run_until([&] { return order.size() == 20; });
    return order;
  };
  const std::vector<int> plain = order_of();
  CHECK(std::is_sorted(plain.begin(), plain.end()));
  CHECK(order_of(1u) == order_of(1u));
  CHECK(order_of(1u) != order_of(2u));
}

/// An operation announced to `ex` that ends when it is sent.
class announced final : public mill::remote_node {
 public:
  explicit announced(mill::executor& ex) : executor_(ex) { ex.operation_started(); }

 private:
  void run() noexcept override { executor_.operation_finished(); }
  mill::executor& executor_;
};

TEST_CASE("an operation that does not report back in time is a deadlock, and the loop waits for it at its end") {
  std::optional<announced> job;  // outlives the loop
  jumping_loop loop({.patience = 1ms});
  job.emplace(loop);
  const auto hang = []() -> mill::task<void> {
    mill::event never;
    co_await never.wait();
  };
  CHECK_THROWS_AS(mill::block_on(loop, hang()), deadlock);  // of its drain(), too
  CHECK(loop.operations() == 1);
  CHECK(loop.frames() == 0);
  std::thread late([&] { loop.post_remote(*job); });
  late.join();
}

}  // namespace
