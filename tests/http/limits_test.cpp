// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Answers and time-outs without a bound of their own.

#include <millrace/http/exchange.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/testing/jumping_loop.hpp>

#include "tests/http/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using s3_server::fault;
using test::fetch;
using then = test::scripted_answer::then;

namespace {

/// What becomes of an answer with a trailer of that many lines of 1024 bytes.
std::string with_trailer(std::size_t lines) {
  std::string text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n";
  for (std::size_t i = 0; i < lines; ++i) text += "X-Trailer: " + std::string(1011, 't') + "\r\n";
  const test::scripted_server server({{text + "\r\n", then::keep}});
  const auto loop = make_event_loop();
  try {
    return block_on(*loop, fetch(server.url()));
  } catch (const http::error& e) {
    CHECK(e.kind() == http::failure::protocol);
    return e.reason();
  }
}

}  // namespace

TEST_CASE("a trailer may be as long as 64 KiB and no longer") {
  CHECK(with_trailer(0) == "200 body");
  CHECK(with_trailer(63) == "200 body");
  CHECK(with_trailer(65) == "the trailer is too long");
  CHECK(with_trailer(1000) == "the trailer is too long");
}

TEST_CASE("a head longer than 256 KiB is an error, interim ones included") {
  testing::jumping_loop loop;
  s3_server::options open_to_all;
  open_to_all.anonymous = s3_server::anonymous_access::read;
  s3_server::server server(open_to_all);
  const spawned<void> serving(loop, server.serve());
  server.objects().put("b", "k", std::string("content"));
  server.faults().add({.key = "k", .nth = 1}, fault::huge_head(300 * KiB));
  server.faults().add({.key = "k", .nth = 2}, fault::huge_head(64 * MiB));
  for (int i = 0; i < 2; ++i) {
    try {
      block_on(loop, fetch(server.endpoint() + "/b/k"));
      FAIL("a head of any length is taken");
    } catch (const http::error& e) {
      CHECK(e.kind() == http::failure::protocol);
      CHECK(e.reason() == "the head is too long");
    }
  }
  CHECK(block_on(loop, fetch(server.endpoint() + "/b/k")) == "200 content");

  std::string hints;
  for (int i = 0; i < 300; ++i) hints += "HTTP/1.1 103 Early Hints\r\nX-Fill: " + std::string(1000, 'f') + "\r\n\r\n";
  const test::scripted_server hinting({{hints + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", then::keep}});
  const auto real = make_event_loop();
  CHECK_THROWS_WITH(block_on(*real, fetch(hinting.url())), Catch::Matchers::Contains("the head is too long"));
}

TEST_CASE("time-outs as long as the clock allows are never reached, and cost no turns of the loop") {
  for (const duration d : {duration::max(), duration::max() - 1h}) {
    for (const fault& f : {fault::delay_head(10s), fault::delay_body(3, 10s)}) {
      testing::jumping_loop loop;
      s3_server::options open_to_all;
      open_to_all.anonymous = s3_server::anonymous_access::read;
      s3_server::server server(open_to_all);
      const spawned<void> serving(loop, server.serve());
      server.objects().put("b", "k", std::string("content"));
      server.faults().add({.key = "k"}, f);
      http::transport_options t;
      t.connect_timeout = 1h;  // libcurl keeps that one, by its own clock
      t.first_byte_timeout = d;
      t.stall_timeout = d;
      spawned<std::string> running(loop, fetch(server.endpoint() + "/b/k", t));
      int turns = 0;
      loop.run_until([&] { return running.done() || ++turns > 10000; });
      REQUIRE(running.done());
      CHECK(running.take() == "200 content");
      CHECK(loop.elapsed() >= 10s);
    }
  }
}
