// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/http/exchange.hpp>

#include <memory>
#include <string>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/http/proxy.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "tests/http/patient_server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using test::scripted_answer;
using test::scripted_server;
using then = test::scripted_answer::then;

namespace {

std::shared_ptr<const http::transport_options> transport(duration first_byte = std::chrono::seconds(30),
                                                duration stall = std::chrono::seconds(30)) {
  http::transport_options t;
  t.first_byte_timeout = first_byte;
  t.stall_timeout = stall;
  return std::make_shared<const http::transport_options>(t);
}

task<std::string> fetch(http::request r, std::shared_ptr<const http::transport_options> t) {
  http::response a = co_await http::send(std::move(r), std::move(t), 64 * MiB);
  co_return std::to_string(a.head.status) + " " + a.body;
}

/// What the exchange gives on a fresh loop: status and body, or the kind of failure.
std::string outcome(http::request r, std::shared_ptr<const http::transport_options> t = transport()) {
  const auto loop = make_event_loop();
  try {
    return block_on(*loop, fetch(std::move(r), std::move(t)));
  } catch (const http::error& e) {
    static const char* const names[] = {"resolve", "connect",  "tls",       "timeout",
                                        "broken",  "protocol", "too_large", "status"};
    INFO(e.what());
    CHECK(e.object().find("127.0.0.1") != std::string::npos);
    return std::string(names[static_cast<int>(e.kind())]) + ": " + e.reason();
  }
}
std::string outcome(const std::vector<scripted_answer>& answers, bool ranged = false) {
  scripted_server server(answers);
  http::request r(server.url());
  if (ranged) r.range = http::byte_range{10, 19};
  return outcome(std::move(r));
}
std::string outcome(const std::string& text, then after = then::keep, bool ranged = false) {
  return outcome({scripted_answer{text, after}}, ranged);
}

bool begins(const std::string& text, const char* start) {
  INFO(text);
  CHECK(text.rfind(start, 0) == 0);
  return text.rfind(start, 0) == 0;
}

}  // namespace

TEST_CASE("an exchange gives status, fields and body") {
  CHECK(outcome("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") == "200 hello");
  CHECK(outcome("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno") == "404 no");
  CHECK(outcome("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n") ==
        "200 abcde");
  CHECK(outcome("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx") == "200 x");
  CHECK(outcome("HTTP/1.1 206 Partial\r\nContent-Length: 10\r\nContent-Range: bytes 10-19/100\r\n\r\n0123456789",
                then::keep, true) == "206 0123456789");
  // Fewer bytes than asked for, where the object ends.
  CHECK(outcome("HTTP/1.1 206 Partial\r\nContent-Length: 2\r\nContent-Range: bytes 10-11/12\r\n\r\n01", then::keep,
                true) == "206 01");
}

TEST_CASE("a redirect is returned and not followed") {
  CHECK(outcome("HTTP/1.1 307 T\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n") == "307 ");
}

// The seven kinds of broken answers that libcurl 7.88 reports as a success.
TEST_CASE("a head cut in the middle is an error") {
  begins(outcome("HTTP/1.1 200 OK\r\nContent-Le", then::fin), "broken");
  begins(outcome("HTTP/1.1 200 OK\r\nETag: \"x\"\r\n", then::fin), "broken");
}
TEST_CASE("a body without a stated end is an error") {
  begins(outcome("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf a bo", then::fin), "protocol");
}
TEST_CASE("two Content-Length fields are an error") {
  begins(outcome("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", then::fin), "protocol");
  begins(outcome("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", then::fin), "protocol");
}
TEST_CASE("a body longer than Content-Length does not leak into the next answer") {
  const std::string longer =
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad";
  scripted_server server({scripted_answer{longer, then::keep},
                          scripted_answer{"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood", then::keep}});
  const auto loop = make_event_loop();
  CHECK(block_on(*loop, fetch(http::request(server.url()), transport())) == "200 hello");
  CHECK(block_on(*loop, fetch(http::request(server.url()), transport())) == "200 good");
}
TEST_CASE("a range from another offset is an error") {
  const char* const head = "HTTP/1.1 206 Partial\r\nContent-Length: 10\r\nContent-Range: bytes ";
  begins(outcome(std::string(head) + "0-9/100\r\n\r\n0123456789", then::keep, true), "protocol");
  begins(outcome(std::string(head) + "10-20/100\r\n\r\n0123456789", then::keep, true), "protocol");
  // Of a length that is right for what it says it is: nothing but the range itself is wrong.
  const auto answered = [](const std::string& range, std::size_t size) {
    return outcome("HTTP/1.1 206 Partial\r\nContent-Length: " + std::to_string(size) + "\r\nContent-Range: bytes " +
                       range + "\r\n\r\n" + std::string(size, 'x'),
                   then::keep, true);
  };
  begins(answered("5-19/100", 15), "protocol: asked for bytes 10-19, was sent 5-19");   // from before
  begins(answered("12-19/100", 8), "protocol: asked for bytes 10-19, was sent 12-19");  // from the end
  begins(answered("0-11/12", 12), "protocol: asked for bytes 10-19, was sent 0-11");    // to the end, from elsewhere
  begins(answered("10-18/100", 9), "protocol: asked for bytes 10-19, was sent 10-18");  // ends before the end
  begins(answered("10-18/*", 9), "protocol: asked for bytes 10-19, was sent 10-18");    // an unknown end
  begins(outcome(std::string(head) + "nonsense\r\n\r\n0123456789", then::keep, true), "protocol");
  begins(outcome("HTTP/1.1 206 Partial\r\nContent-Length: 10\r\n\r\n0123456789", then::keep, true), "protocol");
  begins(outcome("HTTP/1.1 206 Partial\r\nContent-Length: 9\r\nContent-Range: bytes 10-19/100\r\n\r\n012345678",
                 then::keep, true),
         "protocol");
}
TEST_CASE("206 without a range is an error, an ignored range shows in the status") {
  begins(outcome("HTTP/1.1 206 Partial\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/9\r\n\r\nx"), "protocol");
  CHECK(outcome("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nall", then::keep, true) == "200 all");
}

TEST_CASE("broken connections and answers that are not HTTP are errors") {
  begins(outcome("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", then::fin), "broken");
  begins(outcome("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", then::reset), "broken");
  begins(outcome("", then::fin), "broken");
  begins(outcome("", then::reset), "broken");
  begins(outcome("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", then::fin), "broken");
  begins(outcome("SSH-2.0-OpenSSH\r\n", then::fin), "protocol");
  begins(outcome("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", then::fin), "protocol");
  CHECK(outcome(http::request("http://127.0.0.1:1/x")).rfind("connect", 0) == 0);
}

TEST_CASE("a server that says nothing, or stops, meets its time-out") {
  using namespace std::chrono_literals;
  {
    scripted_server server({scripted_answer{"", then::stall}});
    begins(outcome(http::request(server.url()), transport(50ms, 50ms)), "timeout: no answer within 50 ms");
  }
  {
    scripted_server server({scripted_answer{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", then::stall}});
    begins(outcome(http::request(server.url()), transport(5s, 50ms)), "timeout: no byte of the answer for 50 ms");
  }
}

TEST_CASE("an answer that only trickles meets its time-out") {
  using namespace std::chrono_literals;
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::read;
  s3_server::background server(o);
  server.put("b", "k", std::string(600, 'x'));
  const http::request r(server.endpoint() + "/b/k");
  server.faults().add({.times = 1}, s3_server::fault::drip(1, 10ms));
  begins(outcome(r, transport(5s, 100ms)), "timeout: only ");
  server.faults().clear();
  server.faults().add({.times = 1}, s3_server::fault::drip(60, 20ms));
  begins(outcome(r, transport(5s, 1s)), "200 xxx");

  // A head that goes on and on, line by line.
  test::patient_server slow;
  const auto loop = make_event_loop();
  const spawned<std::string> running(*loop, fetch(http::request(slow.url), transport(5s, 100ms)));
  const auto turn = []() -> task<void> { co_await sleep_for(20ms); };
  block_on(*loop, turn());
  slow.answer("HTTP/1.1 200 OK\r\n");
  int lines = 0;
  for (; !running.done() && lines < 500; ++lines) {
    slow.more("a:b\r\n");
    block_on(*loop, turn());
  }
  CHECK(lines < 200);
}

TEST_CASE("connections are kept and used again") {
  scripted_server server({scripted_answer{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", then::keep}});
  const auto loop = make_event_loop();
  for (int i = 0; i < 20; ++i) CHECK(block_on(*loop, fetch(http::request(server.url()), transport())) == "200 ok");
  CHECK(server.connections() == 1);
}

TEST_CASE("a request has the given fields and no others") {
  scripted_server server({scripted_answer{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", then::keep}});
  http::request r(server.url("/a//b/../c%20d?x=%2F"));
  r.fields.add("x-amz-date", "now");
  r.fields.add("empty", "");
  r.range = http::byte_range{1, 2};
  CHECK(outcome(std::move(r)) == "200 ");
  const std::string head = server.requests().at(0);
  CHECK(head.rfind("GET /a//b/../c%20d?x=%2F HTTP/1.1\r\n", 0) == 0);  // the path as it is
  CHECK_THAT(head, Catch::Matchers::Contains("x-amz-date: now\r\n"));
  CHECK_THAT(head, Catch::Matchers::Contains("empty:\r\n"));
  CHECK_THAT(head, Catch::Matchers::Contains("Range: bytes=1-2\r\n"));
  CHECK_THAT(head, Catch::Matchers::Contains("Accept-Encoding: identity\r\n"));
  CHECK(head.find("User-Agent") == std::string::npos);
  CHECK(head.find("Accept: ") == std::string::npos);
}

TEST_CASE("header injection is refused") {
  http::request r("http://127.0.0.1:1/");
  CHECK_THROWS_AS(r.fields.add("x", "a\r\nHost: evil"), configuration_error);
  CHECK_THROWS_AS(r.fields.add("x\n", "a"), configuration_error);
}

TEST_CASE("a URL with line ends, NUL or other control characters is refused, not cut") {
  scripted_server server({scripted_answer{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", then::keep}});
  const auto loop = make_event_loop();
  const std::string bad[] = {"/a\r\nx-evil: 1", "/a\nb", std::string("/a\0b", 4), "/\x7f", "/\t"};
  for (const std::string& path : bad) {
    CHECK_THROWS_AS(block_on(*loop, fetch(http::request(server.url(path)), transport())), configuration_error);
  }
  CHECK(server.connections() == 0);
}

TEST_CASE("messages show the URL without its query") {
  scripted_server server({scripted_answer{"", then::fin}});
  const auto loop = make_event_loop();
  try {
    block_on(*loop, fetch(http::request(server.url("/x?X-Amz-Signature=secret")), transport()));
    FAIL("no error");
  } catch (const http::error& e) {
    CHECK(std::string(e.what()).find("secret") == std::string::npos);
    CHECK(std::string(e.what()).find("/x") != std::string::npos);
  }
}

TEST_CASE("a proxy that libcurl would misread is refused") {
  for (const char* proxy : {"http://127.0.0.1:12/den@127.0.0.1:9", "a:b?c@proxy", "http://us%00er:x@127.0.0.1:9"}) {
    http::transport_options t;
    t.proxy = proxy;
    CHECK_THROWS_AS(
        outcome(http::request("http://127.0.0.1:1/x"), std::make_shared<const http::transport_options>(t)),
        millrace::configuration_error);
  }
  CHECK(http::misread_proxy("http://user:p%2Fass@proxy:3128/path") == nullptr);
  CHECK(http::misread_proxy("proxy:3128/path") == nullptr);
}

TEST_CASE("messages show no part of a proxy's password") {
  for (const char* proxy :
       {"http://user:hid/den@127.0.0.1:9", "http://user:hid den@127.0.0.1:9", "foo://user:hidden@127.0.0.1:9",
        "user:hid/den@proxy:3128", "http://user:hid#den@127.0.0.1:9", "http://user:hidden@127.0.0.1:1",
        "http://127.0.0.1:12/den@127.0.0.1:9"}) {
    http::transport_options t;
    t.proxy = proxy;
    std::string said;
    try {
      said = outcome(http::request("http://127.0.0.1:1/x"), std::make_shared<const http::transport_options>(t));
    } catch (const millrace::configuration_error& e) {
      said = std::string("refused: ") + e.what();
    }
    INFO(proxy << ": " << said);
    CHECK(said.find(": ") != std::string::npos);  // some failure, with its reason
    CHECK(said.find("hid") == std::string::npos);
    CHECK(said.find("den") == std::string::npos);
    CHECK(said.find("user:") == std::string::npos);
  }
}

namespace {

task<void> read_slowly(std::string url, std::size_t& most, std::size_t& total) {
  executor& ex = co_await this_executor();
  slab_pool slabs(64 * KiB);
  http::body_options body;
  body.pool = slabs;
  body.window = 128 * KiB;
  http::request r(std::move(url));
  http::exchange x(http::engine::of(ex), std::move(r), transport(), std::move(body));
  co_await x.head();
  for (;;) {
    for (int i = 0; i < 50; ++i) co_await yield_now();  // the network is faster than we are
    bytes piece = co_await x.read();
    if (piece.empty()) break;
    CHECK(piece.size() <= 64 * KiB);
    total += piece.size();
  }
  most = slabs.peak();
}

}  // namespace

TEST_CASE("a slow reader holds the connection back: the window bounds the memory") {
  const std::string body(3 * MiB + 5, 'x');
  scripted_server server({scripted_answer{
      "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body, then::keep}});
  const auto loop = make_event_loop();
  std::size_t most = 0;
  std::size_t total = 0;
  block_on(*loop, read_slowly(server.url(), most, total));
  CHECK(total == body.size());
  CHECK(most <= 4);  // two slabs of window, one with the reader, one being filled
}

namespace {

task<std::size_t> read_whole(std::string url) {
  executor& ex = co_await this_executor();
  http::body_options body;
  body.pool = slab_pool();
  body.window = 256 * MiB;
  http::request r(std::move(url));
  http::exchange x(http::engine::of(ex), std::move(r), transport(), std::move(body));
  std::size_t total = 0;
  for (;;) {
    bytes piece = co_await x.read();
    if (piece.empty()) break;
    total += piece.size();
  }
  co_return total;
}

}  // namespace

TEST_CASE("a body beyond the limit of one action goes on in the following turns") {
  // libcurl may drain a socket for as long as it has bytes: the transfer pauses itself after 8 MiB and must wake again.
  const std::string body(40 * MiB, 'x');
  scripted_server server({scripted_answer{
      "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body, then::keep}});
  const auto loop = make_event_loop();
  for (int i = 0; i < 3; ++i) CHECK(block_on(*loop, read_whole(server.url())) == body.size());
}

TEST_CASE("an exchange dropped at any moment leaves nothing behind") {
  const std::string body(300000, 'x');
  const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + body;
  scripted_server server({scripted_answer{answer, then::keep}});
  const auto loop = make_event_loop();
  for (int turns = 0; turns < 40; ++turns) {
    {
      spawned<std::string> running(*loop, fetch(http::request(server.url()), transport()));
      int turn = 0;
      loop->run_until([&] { return running.done() || turn++ >= turns; });
    }
    CHECK(http::engine::of(*loop).transfers() == 0);
    CHECK(loop->frames() == 0);
  }
  CHECK(block_on(*loop, fetch(http::request(server.url()), transport())).size() == 300004);
}
