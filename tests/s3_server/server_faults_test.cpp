// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/background.hpp>

#include <chrono>
#include <string>
#include <string_view>

#include "tests/s3_server/raw_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

namespace {

namespace s3_server = millrace::s3_server;
using millrace::test::raw_client;
using s3_server::fault;

const std::string content(100000, 'x');

/// A server with one object under faults.
class faulty {
 public:
  explicit faulty(fault f, bool force_epoll = false) : server_(open_to_all(), loop(force_epoll)) {
    etag = server_.put("b", "k", std::string_view(content));
    server_.faults().add({.key = "k", .times = 1}, std::move(f));
  }
  std::string etag;
  s3_server::background& server() { return server_; }

 private:
  static s3_server::options open_to_all() {
    s3_server::options o;
    o.anonymous = s3_server::anonymous_access::write;
    return o;
  }
  static millrace::loop_options loop(bool force_epoll) {
    millrace::loop_options l;
    l.force_epoll = force_epoll;
    return l;
  }
  s3_server::background server_;
};

/// The first answer under `f`. The second must be sound, on a new connection where the first one ended.
raw_client::answer under(fault f, const std::string& fields = std::string()) {
  faulty tested(std::move(f));
  raw_client client(tested.server().port());
  const auto a = client.ask("GET /b/k", fields);
  raw_client again(tested.server().port());
  CHECK((again.ask("GET /b/k").body == content));
  CHECK(tested.server().faults().injected() == 1);
  CHECK(tested.server().log().entries().at(1).fault == fault::kind::none);
  return a;
}

TEST_CASE("connections end before, in and after the head, by FIN and by RST") {
  CHECK(under(fault::close_before_head()).end == "FIN");
  CHECK(under(fault::reset_before_head()).end == "RST");
  CHECK(under(fault::close_in_head(20)).head.size() == 20);
  const auto head = under(fault::reset_in_head(20));
  CHECK(head.head.size() == 20);
  CHECK(head.end == "RST");
  const auto body = under(fault::close_in_body(70001));
  CHECK(body.field("Content-Length") == "100000");
  CHECK(body.body.size() == 70001);
  CHECK(body.end == "FIN");
  const auto reset = under(fault::reset_in_body(70001));
  CHECK(reset.body.size() == 70001);  // a reset does not overtake what was sent
  CHECK(reset.end == "RST");
}

TEST_CASE("framing") {
  const auto cut = under(fault::cut_without_length(5));
  CHECK(cut.field("Content-Length").empty());
  CHECK(cut.body == "xxxxx");
  CHECK(cut.end == "FIN");
  CHECK((under(fault::no_content_length()).body == content));
  const auto longer = under(fault::wrong_content_length(100005));
  CHECK(longer.body.size() == 100000);
  CHECK(longer.end == "FIN");
  CHECK(under(fault::chunked_cut(5)).body == "5\r\nxxxxx\r\n");
}

TEST_CASE("range ignored, object replaced, other answers") {
  const auto ignored = under(fault::ignore_range(), "Range: bytes=5-9\r\n");
  CHECK(ignored.status == 200);
  CHECK((ignored.body == content));
  CHECK(ignored.field("Content-Range").empty());

  faulty replaced(fault::replace_object());
  raw_client client(replaced.server().port());
  CHECK(client.ask("GET /b/k", "If-Match: " + replaced.etag + "\r\n").status == 412);
  const auto now = client.ask("GET /b/k");
  CHECK(now.status == 200);
  CHECK(now.field("ETag") != replaced.etag);
  CHECK((now.body == content));

  const auto slow = under(fault::refuse(503, "SlowDown").with_field("Retry-After", "1"));
  CHECK(slow.status == 503);
  CHECK(slow.field("Retry-After") == "1");
  CHECK(slow.body.find("<Code>SlowDown</Code>") != std::string::npos);
  CHECK(slow.end.empty());
  CHECK(under(fault::error_in_success("InternalError")).body.find("<Error>") != std::string::npos);
  CHECK(under(fault::page(502)).status == 502);
}

TEST_CASE("delays, drips and stalls; a stalled client can go away") {
  using std::chrono::milliseconds;
  CHECK((under(fault::delay_head(milliseconds(2))).body == content));
  CHECK((under(fault::delay_body(3, milliseconds(2))).body == content));
  CHECK((under(fault::drip(30000, milliseconds(1))).body == content));
  for (const bool epoll : {false, true}) {
    faulty tested(fault::stall_body(100), epoll);
    {
      raw_client client(tested.server().port());
      client.send("GET /b/k HTTP/1.1\r\nHost: localhost\r\n\r\n");
      CHECK(client.read(true).status == 200);
      CHECK(tested.server().stats().in_flight == 1);
    }
    raw_client again(tested.server().port());
    CHECK((again.ask("GET /b/k").body == content));
  }
}

TEST_CASE("the server survives clients that vanish at any moment") {
  for (const bool epoll : {false, true}) {
    faulty tested(fault(), epoll);
    for (const char* sent : {"", "GET ", "GET /b/k HTTP/1.1\r\nHost: localhost\r\n\r\n",
                             "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1234"}) {
      raw_client client(tested.server().port());
      client.send(sent);
    }
    raw_client client(tested.server().port());
    CHECK((client.ask("GET /b/k").body == content));
  }
}

}  // namespace
