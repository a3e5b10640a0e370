// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// How much is received at a time: in one call of libcurl's, in one turn of the loop.

#include <millrace/http/exchange.hpp>

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/units.hpp>
#include <millrace/loop/epoll_loop.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "tests/http/patient_server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using then = test::scripted_answer::then;

namespace {

std::string answer_of(std::size_t size) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n" + std::string(size, 'x');
}

http::exchange get(event_loop& loop, std::string url, http::body_options body) {
  http::request r(std::move(url));
  return http::exchange(http::engine::of(loop), std::move(r), std::make_shared<const http::transport_options>(),
                        std::move(body));
}

/// Tells the descriptor that it watched last.
class telling_loop final : public epoll_loop {
 public:
  ~telling_loop() override { shut_down(); }
  void watch(fd_watch& w, int fd, unsigned events) override {
    watched = fd;
    epoll_loop::watch(w, fd, events);
  }

  int watched = -1;
};

}  // namespace

TEST_CASE("libcurl receives more than 16 KiB with one call") {
  test::patient_server server;
  telling_loop loop;
  CHECK(http::engine::of(loop).options().receive_buffer >= static_cast<long>(256 * KiB));  // of which 40 are seen here
  http::body_options little;
  little.window = little.heap_chunk = 4 * KiB;  // the first call's bytes are more than that: there is no second one
  http::exchange x = get(loop, server.url, little);
  loop.run_until([&] { return loop.watched >= 0; });
  const int socket = loop.watched;
  const std::string answer = answer_of(40 * KiB);
  server.answer(answer);
  // Until all of it is there.
  int enough = static_cast<int>(answer.size());
  REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &enough, sizeof enough) == 0);
  pollfd readable{socket, POLLIN, 0};
  REQUIRE(::poll(&readable, 1, 10'000) == 1);
  enough = 1;
  REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &enough, sizeof enough) == 0);
  loop.run_until([&] { return x.received() > 0; });
  int left = -1;
  REQUIRE(::ioctl(socket, FIONREAD, &left) == 0);
  CHECK(left == 0);
}

TEST_CASE("a turn of the loop takes a bounded part of a body, however fast it comes") {
  constexpr std::uint64_t size = 64 * MiB;
  const test::scripted_server server({{answer_of(size), then::keep}});
  const auto loop = make_event_loop();
  http::body_options large;
  large.window = 256 * MiB;
  const http::exchange x = get(*loop, server.url(), large);
  std::uint64_t before = 0;
  std::uint64_t most = 0;
  loop->run_until([&] {
    most = std::max(most, x.received() - before);
    before = x.received();
    return before == size;
  });
  // The limit is 8 MiB, 2 to 6 ms of receiving, and is looked at when a buffer is full.
  CHECK(most <= 8 * MiB + 2 * 256 * KiB);
}
