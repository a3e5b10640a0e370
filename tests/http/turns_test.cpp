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
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/loop/epoll_loop.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/memory/slab_pool.hpp>

#include "tests/http/patient_server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
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

class counted_source final : public slab_source {
 public:
  void* allocate(std::size_t size) override {
    ++made;
    return plain_.allocate(size);
  }
  void free(void* memory, std::size_t size) noexcept override { plain_.free(memory, size); }

  std::size_t made = 0;

 private:
  plain_slab_source plain_;
};

/// Goes on only when all of its sockets have an answer to read, once they have asked; counts what a turn makes.
class crowded_loop final : public epoll_loop {
 public:
  crowded_loop(std::size_t sockets, const std::size_t& made) : sockets_(sockets), made_(made) {}
  ~crowded_loop() override { shut_down(); }
  void watch(fd_watch& w, int fd, unsigned events) override {
    watched_[fd] = static_cast<short>(events);
    epoll_loop::watch(w, fd, events);
  }

  /// What has been made since the last time, that is since the kernel was asked last.
  void count() { most = std::max(most, made_ - std::exchange(before_, made_)); }

  bool crowded = false;
  std::size_t most = 0;

 protected:
  void poll(bool block, std::optional<time_point> deadline) override {
    count();
    std::vector<pollfd> asked;
    for (const auto& [fd, events] : watched_) {
      if (events == POLLIN) asked.push_back(pollfd{fd, POLLIN, 0});
    }
    if (!crowded && asked.size() == sockets_) {
      for (pollfd& one : asked) REQUIRE(::poll(&one, 1, 10'000) == 1);
      crowded = true;
    }
    epoll_loop::poll(block, deadline);
  }

 private:
  const std::size_t sockets_;
  const std::size_t& made_;
  std::size_t before_ = 0;
  std::map<int, short> watched_;
};

}  // namespace

TEST_CASE("libcurl receives more than 16 KiB with one call") {
  test::patient_server server;
  telling_loop loop;
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

TEST_CASE("a turn of the loop makes one slab, however many bodies begin", "[http]") {
  constexpr std::size_t count = 8;
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::read;
  s3_server::background server(o);
  server.put("b", "k", std::string(MiB, 'x'));
  const auto memory = std::make_shared<counted_source>();
  const slab_pool slabs(MiB, memory);
  crowded_loop loop(count, memory->made);
  std::vector<http::exchange> all;
  for (std::size_t i = 0; i < count; ++i) {
    http::body_options body;
    body.pool = slabs;
    all.push_back(get(loop, server.endpoint() + "/b/k", std::move(body)));
  }
  loop.run_until([&] {
    std::uint64_t sum = 0;
    for (const http::exchange& x : all) sum += x.received();
    return sum == count * MiB;
  });
  loop.count();
  CHECK(loop.crowded);
  CHECK(memory->made == count);
  CHECK(loop.most <= 2);  // one of sockets that are ready, and one when the next turn begins
}
