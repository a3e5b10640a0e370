// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/http/engine.hpp>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/io/timeout.hpp>
#include <millrace/loop/epoll_loop.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/testing/jumping_loop.hpp>

#include "tests/http/patient_server.hpp"
#include "tests/http/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using s3_server::fault;
using test::fetch;
using test::patient_server;
using test::scripted_server;
using then = test::scripted_answer::then;

TEST_CASE("what libcurl does after a transfer is not charged to the stage that waited for it") {
  patient_server later;
  const scripted_server quick({{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", then::keep}});
  const auto loop = make_event_loop();
  stage_recorder first;  // of two pipelines on one loop: the records of either may end at any time
  stage_recorder second;
  spawned<std::string> waiting({*loop, first.find_or_add("first", nullptr)}, fetch(later.url));
  stage_record* const ended = second.find_or_add("second", nullptr);
  CHECK(block_on({*loop, ended}, fetch(quick.url())) == "200 ok");
  REQUIRE(http::engine::of(*loop).transfers() == 1);
  const std::int64_t busy = ended->busy_ns;
  CHECK(busy > 0);
  later.answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlater");
  loop->run_until([&] { return waiting.done(); });
  CHECK(waiting.take() == "200 later");
  CHECK(ended->busy_ns == busy);
}

namespace {

/// Two requests for one connection: what becomes of the second.
task<std::string> second_of_two(std::string url, http::transport_options t) {
  executor& ex = co_await this_executor();
  http::engine_options one_at_a_time;
  one_at_a_time.connections_per_host = 1;
  http::engine::of(ex, one_at_a_time);
  const spawned<std::string> first(ex, fetch(url, t));
  spawned<std::string> second(ex, fetch(std::move(url), std::move(t)));
  std::string outcome;
  try {
    outcome = co_await second;
  } catch (const http::error& e) {
    outcome = e.reason();
  }
  CHECK(first.done());
  co_return outcome;
}

}  // namespace

TEST_CASE("a request's time for its answer begins when it has a connection") {
  http::transport_options t;
  t.first_byte_timeout = 3s;
  for (const bool answered : {true, false}) {
    testing::jumping_loop loop;
    s3_server::options open_to_all;
    open_to_all.anonymous = s3_server::anonymous_access::read;
    s3_server::server server(open_to_all);
    const spawned<void> serving(loop, server.serve());
    server.objects().put("b", "k", std::string("content"));
    server.faults().add({.key = "k", .nth = 1}, fault::delay_head(2500ms));
    server.faults().add({.key = "k", .nth = 2}, answered ? fault::delay_head(2s) : fault::stall_head());
    const std::string outcome = block_on(loop, second_of_two(server.endpoint() + "/b/k", t));
    CHECK(outcome == (answered ? "200 content" : "no answer within 3000 ms"));
    CHECK(loop.elapsed() >= (answered ? 4500ms : 5500ms));
  }
}

namespace {

/// Opens `n` bodies of one server, larger than what is received ahead, and reads the last before the others. Gives how
/// many bytes came.
task<std::size_t> last_before_first(std::string url, std::size_t n) {
  executor& ex = co_await this_executor();
  http::engine_options two;
  two.connections_per_host = 2;
  http::engine& engine = http::engine::of(ex, two);
  const auto transport = std::make_shared<const http::transport_options>();
  http::body_options little;
  little.window = little.heap_chunk = 4 * KiB;
  std::vector<http::exchange> open;
  for (std::size_t i = 0; i < n; ++i) {
    http::request r(url);
    open.emplace_back(engine, std::move(r), transport, little);
  }
  std::size_t got = 0;
  for (std::size_t i = n; i > 0; --i) {
    for (;;) {
      const bytes piece = co_await open[i - 1].read();
      if (piece.empty()) break;
      got += piece.size();
    }
  }
  co_return got;
}

}  // namespace

TEST_CASE("bodies that are not read do not keep others from their turn, however many connections they hold") {
  testing::jumping_loop loop;
  s3_server::options open_to_all;
  open_to_all.anonymous = s3_server::anonymous_access::read;
  s3_server::server server(open_to_all);
  const spawned<void> serving(loop, server.serve());
  server.objects().put("b", "k", std::string(8 * MiB, 'x'));
  CHECK(block_on(loop, with_timeout(1h, last_before_first(server.endpoint() + "/b/k", 7))) == 7 * 8 * MiB);
  CHECK(loop.elapsed() < 1min);
  CHECK(http::engine::of(loop).transfers() == 0);
}

namespace {

/// Refuses to watch descriptors while told so, as the kernel does at fs.epoll.max_user_watches; time that nothing can
/// happen in is jumped over then.
class full_loop final : public epoll_loop {
 public:
  ~full_loop() override { shut_down(); }
  std::int64_t now_ns() const noexcept override { return monotonic_ns() + jumped_; }
  void watch(fd_watch& w, int fd, unsigned events) override {
    if (full) {
      ++refused;
      throw io_error(std::errc::no_space_on_device, "watching a descriptor");
    }
    epoll_loop::watch(w, fd, events);
  }

  bool full = false;
  int refused = 0;

 protected:
  void poll(bool block, std::optional<time_point> deadline) override {
    if (!full) return epoll_loop::poll(block, deadline);
    if (block && deadline && *deadline > now()) jumped_ += (*deadline - now()).count();
  }

 private:
  std::int64_t jumped_ = 0;
};

}  // namespace

TEST_CASE("a loop that cannot watch a socket fails its transfer at once, with the reason, and no other") {
  const scripted_server silent({{"", then::stall}});
  const scripted_server server({{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", then::keep}});
  full_loop loop;
  loop.full = true;
  const time_point begun = loop.now();
  try {
    block_on(loop, fetch(silent.url()));
    FAIL("an answer came through a socket that is not watched");
  } catch (const io_error& e) {
    CHECK(e.code() == std::errc::no_space_on_device);
  }
  CHECK(loop.now() - begun < 5s);  // sooner than any time-out
  CHECK(loop.refused > 0);
  loop.full = false;
  CHECK(block_on(loop, fetch(server.url())) == "200 ok");
}
