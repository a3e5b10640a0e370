// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// How connections are made: time, certificates, and to what at all.

#include <millrace/http/exchange.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/testing/jumping_loop.hpp>

#include "tests/http/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using test::fetch;

namespace {

/// A port whose queue of connections is full: who asks for one more hears nothing.
class crowded_port {
 public:
  crowded_port() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    sockets_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(sockets_[0], name, size) == 0);
    REQUIRE(::listen(sockets_[0], 0) == 0);
    REQUIRE(::getsockname(sockets_[0], name, &size) == 0);
    for (int i = 0; i < 4; ++i) {
      sockets_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(sockets_.back(), name, size);
    }
    url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
  }
  ~crowded_port() {
    for (int fd : sockets_) ::close(fd);
  }

  std::string url;

 private:
  std::vector<int> sockets_;
};

class patience_ended final : public timer_node {
 public:
  bool rang = false;

 protected:
  void fire() noexcept override { rang = true; }
};

}  // namespace

TEST_CASE("a time-out for connecting below a millisecond is the shortest one, not libcurl's own") {
  const crowded_port port;
  for (const duration d : {duration(500us), duration(1), duration(0), duration(-1s), duration::min()}) {
    const auto loop = make_event_loop();
    http::transport_options t;
    t.connect_timeout = d;
    spawned<std::string> running(*loop, fetch(port.url, t));
    patience_ended patience;
    loop->add_timer(patience, loop->now() + 20s);  // libcurl's own: five minutes
    loop->run_until([&] { return running.done() || patience.rang; });
    loop->remove_timer(patience);
    REQUIRE(running.done());
    try {
      running.take();
      FAIL("a connection");
    } catch (const http::error& e) {
      INFO(e.what());
      CHECK(e.kind() == http::failure::timeout);
    }
  }
}

TEST_CASE("a time-out for connecting may be as long as the clock allows") {
  testing::jumping_loop loop;
  s3_server::server server;
  const spawned<void> serving(loop, server.serve());
  http::transport_options t;
  t.connect_timeout = duration::max();
  CHECK(block_on(loop, fetch(server.endpoint() + "/b/k", t)).substr(0, 4) == "403 ");
}

namespace {

/// What a client that trusts `authorities` gets; "refused" by a failure of the expected kind, or of the other one where
/// libcurl kept the head of the answer to itself.
std::string over_tls(event_loop& loop, const s3_server::server& server, const std::string& authorities,
                     http::failure expected = http::failure::tls, http::failure headless = http::failure::tls) {
  http::transport_options t;
  t.ca_file = authorities;
  try {
    return block_on(loop, fetch(server.endpoint() + "/b/k", t));
  } catch (const http::error& e) {
    INFO(e.what());
    CHECK(e.kind() == (e.status() == 0 ? headless : expected));
    return "refused";
  }
}

s3_server::options encrypted(std::string name) {
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::read;
  o.tls.enabled = true;
  o.tls.certificate_name = std::move(name);
  return o;
}

}  // namespace

TEST_CASE("a certificate must be for the host, and of an authority that is trusted") {
  s3_server::server right(encrypted(""));
  s3_server::server misnamed(encrypted("other.test"));
  for (s3_server::server* server : {&right, &misnamed}) server->objects().put("b", "k", std::string("content"));
  testing::jumping_loop loop;
  const spawned<void> serving_right(loop, right.serve());
  const spawned<void> serving_misnamed(loop, misnamed.serve());
  CHECK(over_tls(loop, right, right.certificate_file()) == "200 content");
  CHECK(over_tls(loop, misnamed, misnamed.certificate_file()) == "refused");
  CHECK(over_tls(loop, right, misnamed.certificate_file()) == "refused");
  CHECK(over_tls(loop, right, "") == "refused");
}

TEST_CASE("a body without a stated end is an error over TLS too, where its end shows even less") {
  s3_server::server server(encrypted(""));
  server.objects().put("b", "k", std::string("content"));
  server.faults().add({.key = "k", .nth = 1}, s3_server::fault::cut_without_length(3));
  server.faults().add({.key = "k", .nth = 2}, s3_server::fault::no_content_length());
  testing::jumping_loop loop;
  const spawned<void> serving(loop, server.serve());
  for (int i = 0; i < 2; ++i) {
    CHECK(over_tls(loop, server, server.certificate_file(), http::failure::protocol, http::failure::broken) ==
          "refused");
  }
  CHECK(over_tls(loop, server, server.certificate_file()) == "200 content");
}

TEST_CASE("nothing but HTTP is spoken") {
  const auto loop = make_event_loop();
  for (const char* url : {"file:///proc/self/status", "ftp://127.0.0.1:1/x", "gopher://127.0.0.1:1/x"}) {
    try {
      block_on(*loop, fetch(url));
      FAIL(url);
    } catch (const millrace::error& e) {
      INFO(e.what());
      CHECK_THAT(e.what(), Catch::Matchers::Contains("Protocol \""));
    }
  }
}
