// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/background.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/s3_server/raw_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

namespace {

namespace s3_server = millrace::s3_server;
using millrace::test::raw_client;

s3_server::options open_to_all() {
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::write;
  o.max_object_size = 1 << 20;
  return o;
}

/// After all clients have gone, the server must have let go of all of them too.
void check_nothing_left(s3_server::background& server) {
  server.faults().clear();
  raw_client last(server.port());
  for (int i = 0; i < 100000 && server.stats().open_connections > 1; ++i) last.ask("GET /b/k");
  CHECK(last.ask("GET /b/k").status == 200);
  CHECK(server.stats().open_connections == 1);
  CHECK(server.stats().in_flight <= 1);
}

TEST_CASE("requests with random damage are answered or dropped, and the server goes on") {
  s3_server::background server(open_to_all());
  server.put("b", "k", std::string_view("0123456789"));
  const std::vector<std::string> seeds{
      "GET /b/k HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-2\r\n\r\n",
      "GET /b?list-type=2&prefix=a%20b&max-keys=3&delimiter=%2F&encoding-type=url HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
      "PUT /b/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n\r\nhello",
      "PUT /b/p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
      "PUT /b/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 25\r\nx-amz-decoded-content-length: 5\r\n"
      "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n\r\n5\r\nhello\r\n0\r\na:b\r\n\r\n",
      "POST /b/p?uploads HTTP/1.1\r\nHost: b.localhost:80\r\nContent-Length: 0\r\n\r\n",
      "GET /b/k HTTP/1.1\r\nHost: localhost\r\nx-amz-date: 20130524T000000Z\r\nAuthorization: AWS4-HMAC-SHA256 "
      "Credential=test-key/20130524/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00\r\n\r\n",
      "GET /b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=test-key%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
      "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=10&X-Amz-SignedHeaders=host&X-Amz-Signature=0 HTTP/1.1\r\n"
      "Host: localhost\r\n\r\n"};
  millrace::rng random(1);
  for (int i = 0; i < 400; ++i) {
    std::string text = seeds[random.below(seeds.size())];
    for (std::uint64_t changes = random.below(4); changes > 0; --changes) {
      const std::size_t at = random.below(text.size());
      switch (random.below(4)) {
        case 0:
          text[at] = static_cast<char>(random.next());
          break;
        case 1:
          text.erase(at, random.below(20) + 1);
          break;
        case 2:
          text.insert(at, text.substr(random.below(text.size()), 20));
          break;
        default:
          text.resize(at + 1);
          break;
      }
    }
    INFO(i << ": " << text);
    raw_client client(server.port());
    client.send(text);
    client.shutdown();
    const auto answer = client.read_to_end();
    CHECK((answer.body.empty() || answer.body.substr(0, 9) == "HTTP/1.1 "));
  }
  check_nothing_left(server);
}

TEST_CASE("random faults in every answer leave nothing behind") {
  for (const bool epoll : {false, true}) {
    millrace::loop_options l;
    l.force_epoll = epoll;
    s3_server::background server(open_to_all(), l);
    server.put("b", "k", std::string_view(std::string(200000, 'x')));
    server.faults().randomize({.seed = 5, .probability = 1, .per_request = 0});
    for (int i = 0; i < 150; ++i) {
      raw_client client(server.port());
      client.ask(i % 3 == 0   ? "GET /b?list-type=2"
                 : i % 3 == 1 ? "GET /b/k"
                              : "HEAD /b/k",
                 i % 2 == 0 ? "" : "Range: bytes=5-9\r\n");
    }
    CHECK(server.faults().injected() == 150);
    check_nothing_left(server);
  }
}

TEST_CASE("a connection ends after its last request") {
  s3_server::options o = open_to_all();
  o.max_requests_per_connection = 2;
  o.log_limit = 1;
  s3_server::background server(o);
  server.put("b", "k", std::string_view("x"));
  raw_client client(server.port());
  CHECK(client.ask("GET /b/k").field("Connection").empty());
  CHECK(client.ask("GET /b/k").field("Connection") == "close");
  CHECK(client.read_to_end().end == "FIN");
  CHECK(server.log().size() == 2);
  CHECK(server.log().entries().size() == 1);
}

TEST_CASE("a server ends with clients at the door") {
  for (int i = 0; i < 100; ++i) {
    std::optional<s3_server::background> server(std::in_place, open_to_all());
    const raw_client first(server->port());
    const raw_client second(server->port());
    server.reset();  // wherever the two are: in the backlog, accepted, served
  }
}

TEST_CASE("a handshake that stalls ends when the client gives up") {
  s3_server::options o = open_to_all();
  o.tls.enabled = true;
  o.tls.greeting = s3_server::tls_options::handshake::stall;
  s3_server::background server(o);
  {
    raw_client client(server.port());
    client.send("anything");
  }
  raw_client garbage(server.port());
  garbage.send("anything");
  garbage.shutdown();
  CHECK(garbage.read_to_end().body.empty());
  CHECK(server.stats().requests == 0);
}

TEST_CASE("bytes that are no TLS end the connection") {
  s3_server::options o = open_to_all();
  o.tls.enabled = true;
  s3_server::background server(o);
  raw_client client(server.port());
  client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  client.read_to_end();
  CHECK(server.stats().requests == 0);
}

TEST_CASE("the server's clock is its own, in dates and in verdicts") {
  s3_server::options o = open_to_all();
  o.clock_offset = 1369353600 - static_cast<std::int64_t>(::time(nullptr)) + 5;  // 2013-05-24
  s3_server::background server(o);
  server.put("b", "k", std::string_view("x"));
  raw_client client(server.port());
  CHECK(client.ask("HEAD /b/k").field("Date").substr(0, 16) == "Fri, 24 May 2013");
  CHECK(client.ask("HEAD /b/k").field("Last-Modified").substr(0, 16) == "Fri, 24 May 2013");
  server.clock().set_offset(0);
  CHECK(client.ask("HEAD /b/k").field("Date").find("2013") == std::string::npos);
}

}  // namespace
