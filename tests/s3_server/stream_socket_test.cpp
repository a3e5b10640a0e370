// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/stream_socket.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <sys/epoll.h>

#include <millrace/coro/block_on.hpp>
#include <millrace/testing/census.hpp>

#include "tests/loop/loops.hpp"
#include "tests/loop/refuse_call.hpp"
#include "tests/s3_server/read_error.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

/// Two connected sockets.
struct socket_pair {
  explicit socket_pair(int domain = AF_UNIX) {
    if (domain == AF_UNIX) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("no socket pair");
      a = stream_socket(ends[0]);
      b = stream_socket(ends[1]);
      return;
    }
    listener = stream_socket::listen("127.0.0.1", 0);
    a = connected(listener.port());
  }
  /// A TCP connection to that port of the loopback, through the listener's backlog.
  static stream_socket connected(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    stream_socket s(fd);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // Non-blocking: the kernel completes it on the loopback without us.
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 && errno != EINPROGRESS) {
      throw std::runtime_error("cannot connect");
    }
    return s;
  }
  stream_socket listener;
  stream_socket a;
  stream_socket b;
};

task<std::string> read_all(stream_socket& s) {
  std::string text;
  std::vector<char> memory(10000);
  for (;;) {
    const std::size_t n = co_await s.read_some(memory);
    if (n == 0) co_return text;
    text.append(memory.data(), n);
  }
}

task<void> write(stream_socket& s, std::vector<std::string_view> pieces) {
  co_await s.write_all(pieces);
  s.shutdown_write();
}

task<stream_socket> accept_one(stream_socket& listener) { co_return co_await listener.accept(); }

task<int> write_error(stream_socket& s, std::string_view text) {
  try {
    const std::string_view pieces[] = {text};
    for (int i = 0; i < 1000; ++i) co_await s.write_all(pieces);
    co_return 0;
  } catch (const io_error& e) {
    co_return e.code().value();
  }
}

TEST_CASE("pieces of every size arrive in order, more of them and more bytes than one call takes", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  socket_pair pair;
  std::string text(3 << 20, 'a');
  for (std::size_t i = 0; i < text.size(); i += 3) text[i] = static_cast<char>('b' + i % 23);
  std::vector<std::string_view> pieces{""};
  for (std::size_t at = 0, size = 0; at < text.size(); at += size) {
    size = std::min(text.size() - at, pieces.size() * 97 % 70000 + 1);
    pieces.push_back(std::string_view(text).substr(at, size));
    if (pieces.size() % 5 == 0) pieces.push_back("");
  }
  pieces.push_back("");
  spawned<void> writing(loop, write(pair.a, pieces));
  const std::string received = block_on(loop, read_all(pair.b));
  CHECK((received == text));
  CHECK(writing.done());
}

TEST_CASE("nothing to write is written at once", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  socket_pair pair;
  block_on(loop, write(pair.a, {}));
  CHECK(block_on(loop, read_all(pair.b)).empty());
}

TEST_CASE("both directions of one socket at a time", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  socket_pair pair;
  const std::string text(2 << 20, 'x');
  spawned<void> there(loop, write(pair.a, {text}));
  spawned<void> back(loop, write(pair.b, {text, text}));
  spawned<std::string> read_there(loop, read_all(pair.b));
  spawned<std::string> read_back(loop, read_all(pair.a));
  loop.run_until([&] { return read_there.done() && read_back.done(); });
  CHECK(read_there.take().size() == text.size());
  CHECK(read_back.take().size() == 2 * text.size());
}

TEST_CASE("a listener takes connections that wait and connections that come", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  stream_socket listener = stream_socket::listen("127.0.0.1", 0);
  CHECK(listener.port() != 0);
  stream_socket early = socket_pair::connected(listener.port());
  CHECK(block_on(loop, accept_one(listener)).fd() >= 0);
  spawned<stream_socket> accepting(loop, accept_one(listener));
  turns(loop, 3);
  CHECK(!accepting.done());
  stream_socket late = socket_pair::connected(listener.port());
  loop.run_until([&] { return accepting.done(); });
  stream_socket peer = accepting.take();
  spawned<void> writing(loop, write(late, {"hello"}));
  CHECK(block_on(loop, read_all(peer)) == "hello");
}

task<std::string> read_error_of(stream_socket& s) {
  char c = 0;
  try {
    static_cast<void>(co_await s.read_some(std::span<char>(&c, 1)));
  } catch (const usage_error& e) {
    co_return e.what();
  }
  co_return "";
}
task<std::string> write_misuse_of(stream_socket& s) {
  const std::string_view pieces[] = {"x"};
  try {
    co_await s.write_all(pieces);
  } catch (const usage_error& e) {
    co_return e.what();
  }
  co_return "";
}

TEST_CASE("a socket that is empty, or belongs to another loop, is refused with a sentence", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  socket_pair pair;
  stream_socket none;
  CHECK(block_on(loop, read_error_of(none)).find("a socket was used that is empty") == 0);
  CHECK(block_on(loop, write_misuse_of(none)).find("a socket was used that is empty") == 0);
  block_on(loop, write(pair.a, {"abc"}));
  const auto other = make_loop(kind_of_loop);
  CHECK(block_on(*other, read_error_of(pair.a)).find("a socket was awaited on two loops") == 0);
  CHECK(block_on(*other, write_misuse_of(pair.a)).find("a socket was awaited on two loops") == 0);
  CHECK(block_on(*other, read_all(pair.b)) == "abc");  // which was not waited on
}

TEST_CASE("a second operation of one kind is refused, and the first one goes on", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  socket_pair pair;
  spawned<std::string> first(loop, read_all(pair.a));
  turns(loop, 2);
  CHECK(block_on(loop, read_error_of(pair.a)) == "two operations of one kind wait for a socket");
  block_on(loop, write(pair.b, {"abc"}));
  loop.run_until([&] { return first.done(); });
  CHECK(first.take() == "abc");
}

TEST_CASE("addresses that cannot be listened on", "[io]") {
  const stream_socket first = stream_socket::listen("127.0.0.1", 0);
  try {
    stream_socket::listen("127.0.0.1", first.port());
    FAIL("two listeners on one port");
  } catch (const io_error& e) {
    CHECK(e.code() == std::errc::address_in_use);
  }
  CHECK_THROWS_AS(stream_socket::listen("localhost", 0), io_error);
}

TEST_CASE("a reset is an error of the reader, a peer that is gone one of the writer", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  stream_socket listener = stream_socket::listen("127.0.0.1", 0);
  stream_socket a = socket_pair::connected(listener.port());
  stream_socket b = block_on(loop, accept_one(listener));
  spawned<int> reading(loop, read_error(a));
  turns(loop, 2);
  b.reset_on_close();
  b = stream_socket();
  loop.run_until([&] { return reading.done(); });
  CHECK(reading.take() == ECONNRESET);

  socket_pair pair;
  pair.b = stream_socket();
  CHECK(block_on(loop, write_error(pair.a, "x")) == EPIPE);
  CHECK(block_on(loop, read_error(pair.a)) == 0);
}

TEST_CASE("a writer that waits learns that its peer has gone", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  socket_pair pair;
  const std::string text(1 << 20, 'x');
  spawned<int> writing(loop, write_error(pair.a, text));
  turns(loop, 3);
  CHECK(!writing.done());
  pair.b = stream_socket();
  loop.run_until([&] { return writing.done(); });
  const int code = writing.take();
  CHECK((code == EPIPE || code == ECONNRESET));
}

TEST_CASE("dropping an operation that waits leaves nothing behind, and the socket works on", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  testing::census before(loop);
  stream_socket listener = stream_socket::listen("127.0.0.1", 0);
  for (int i = 0; i < 3; ++i) {
    spawned<stream_socket> accepting(loop, accept_one(listener));
    turns(loop, i);
  }
  stream_socket a = socket_pair::connected(listener.port());
  stream_socket b = block_on(loop, accept_one(listener));
  for (int i = 0; i < 3; ++i) {
    const auto memory = std::make_unique<char[]>(4);  // freed when the read is dropped
    spawned<int> reading(loop, read_error(a));
    turns(loop, i);
  }
  {
    const std::string text(8 << 20, 'x');  // also freed while its write waits
    spawned<int> writing(loop, write_error(a, text));
    turns(loop, 3);
    CHECK(!writing.done());
  }
  {
    spawned<void> there(loop, write(b, {"hello"}));
    CHECK(block_on(loop, read_all(a)) == "hello");
  }
  CHECK(before.difference() == "");
}

TEST_CASE("dropping an operation that has just become ready", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  testing::census before(loop);
  socket_pair pair;
  {
    spawned<int> reading(loop, read_error(pair.a));
    turns(loop, 2);
    const std::string_view pieces[] = {"x"};
    spawned<void> writing(loop, write(pair.b, {pieces[0]}));
    loop.run_until([&] { return writing.done(); });
  }
  stream_socket listener = stream_socket::listen("127.0.0.1", 0);
  {
    // A connection that was accepted without a waiter is closed.
    spawned<stream_socket> accepting(loop, accept_one(listener));
    turns(loop, 2);
    stream_socket a = socket_pair::connected(listener.port());
    turns(loop, 2);
  }
  CHECK(before.difference() == "");
}

TEST_CASE("a socket that is not read does not keep the loop busy", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  socket_pair pair;
  spawned<int> reading(loop, read_error(pair.a));
  turns(loop, 2);
  // The peer ends; the reader sees it and does not read again. The loop must be able to sleep until the timer.
  pair.b = stream_socket();
  loop.run_until([&] { return reading.done(); });
  std::size_t asked = 0;
  struct alarm final : timer_node {
    void fire() noexcept override { fired = true; }
    bool fired = false;
  } timer;
  loop.add_timer(timer, loop.now() + std::chrono::milliseconds(20));
  loop.run_until([&] {
    ++asked;
    return timer.fired;
  });
  CHECK(asked < 20);
}

// Sockets that the kernel does not let the loop watch.

/// Writes more than the socket takes: 0 never, else the error.
task<int> write_for_ever(stream_socket& s) {
  try {
    const std::string text(1 << 20, 'x');
    const std::string_view pieces[] = {text};
    for (;;) co_await s.write_all(pieces);
  } catch (const io_error& e) {
    co_return e.code().value();
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
