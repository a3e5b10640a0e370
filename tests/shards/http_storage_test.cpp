// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/http_storage.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/testing/jumping_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using s3_server::fault;
using test::scripted_answer;
using then = test::scripted_answer::then;
using ranges = std::vector<std::string>;

namespace {

constexpr std::size_t object_size = 200'000;

std::string content() {
  std::string text(object_size, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * i % 26);
  return text;
}

/// A server that anybody may read, with one object behind faults.
class web {
 public:
  web() : storage_(http::transport_options(), quick()) { etag = server.put("b", "k", text); }

  /// The part, what is left of an object sent in one go behind it, or what went wrong.
  std::string get(std::uint64_t offset, std::size_t length, const std::string& if_match = std::string()) {
    return read_from(server.endpoint() + "/b/k", offset, length, if_match);
  }
  std::string read_from(const std::string& url, std::uint64_t offset, std::size_t length,
                        const std::string& if_match = std::string()) {
    const auto loop = make_event_loop();
    try {
      return block_on(*loop, all(storage_.read(shard(url), if_match, offset, length, slab_pool(64 * KiB))));
    } catch (const changed_error& e) {
      return std::string("changed: ") + e.what();
    } catch (const error& e) {
      return e.what();
    }
  }
  ranges asked() const {
    ranges all;
    for (const auto& r : server.log().entries()) all.push_back(r.range);
    return all;
  }
  static retry_options quick() {
    retry_options o;
    o.base = std::chrono::microseconds(10);
    o.throttling_base = std::chrono::microseconds(20);
    o.max_over_hint = std::chrono::milliseconds(1);
    return o;
  }

  const std::string text = content();
  mutable s3_server::background server{open_to_all()};
  std::string etag;

 private:
  static s3_server::options open_to_all() {
    s3_server::options o;
    o.anonymous = s3_server::anonymous_access::read;
    return o;
  }
  static task<std::string> all(task<storage::part> reading) {
    storage::part p = co_await std::move(reading);
    std::string bytes_read(p.data.view());
    while (p.rest != nullptr) {
      const bytes more = co_await p.rest->next();
      if (more.empty()) break;
      CHECK(more.size() <= 64 * KiB);
      bytes_read += more.view();
    }
    co_return bytes_read;
  }

  http_storage storage_;
};

}  // namespace

TEST_CASE("parts of objects on the web, and objects that are sent in one go", "[http_storage]") {
  web w;
  CHECK(w.get(10, 1000) == w.text.substr(10, 1000));
  CHECK((w.get(object_size - 5, 1000) == w.text.substr(object_size - 5)));
  w.server.put("b", "empty", std::string());
  CHECK(w.read_from(w.server.endpoint() + "/b/empty", 0, 1000).empty());
  w.server.faults().add({.key = "k", .times = 1}, fault::ignore_range());
  CHECK((w.get(0, 1000) == w.text));
  CHECK_THAT(w.read_from(w.server.endpoint() + "/b/none?X-Amz-Signature=secret", 0, 10),
             Contains("/b/none at byte 0: the server answered 40") && !Contains("secret"));
}

TEST_CASE("what may pass is tried again, what may not is not", "[http_storage]") {
  web w;
  const fault passing[] = {fault::refuse(503, "SlowDown").with_field("Retry-After", "7"),
                           fault::page(502),
                           fault::refuse(429, "TooMany"),
                           fault::close_before_head(),
                           fault::garbage_status(),
                           fault::wrong_content_range(),
                           fault::close_in_head(30)};
  for (const fault& f : passing) {
    w.server.faults().clear();
    w.server.faults().add({.key = "k", .times = 2}, f);
    CHECK(w.get(10, 1000) == w.text.substr(10, 1000));
  }
  w.server.log().clear();
  w.server.faults().clear();
  w.server.faults().add({.key = "k"}, fault::refuse(500, "InternalError"));
  CHECK_THAT(w.get(0, 10), Contains("/b/k at byte 0: the server answered 500"));
  CHECK(w.asked().size() == 3);
  w.server.log().clear();
  w.server.faults().clear();
  w.server.faults().add({.key = "k"}, fault::refuse(403, "AccessDenied"));
  CHECK_THAT(w.get(0, 10), Contains("the server answered 403"));
  CHECK(w.asked().size() == 1);
}

TEST_CASE("a part that breaks off goes on at the next byte", "[http_storage]") {
  web w;
  w.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(20'000));
  w.server.faults().add({.key = "k", .nth = 2}, fault::refuse(503, "SlowDown"));
  CHECK((w.get(1000, 64 * KiB) == w.text.substr(1000, 64 * KiB)));
  CHECK(w.asked() == ranges{"bytes=1000-66535", "bytes=21000-66535", "bytes=21000-66535"});
  for (const auto& r : w.server.log().entries()) {
    const bool with_version = r.range == "bytes=1000-66535" || r.if_match == w.etag;
    CHECK(with_version);
  }
}

TEST_CASE("an object that is replaced has changed", "[http_storage]") {
  web w;
  CHECK_THAT(w.get(0, 10, "\"old\""), Contains("changed: ") && Contains("\"old\""));
  w.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(100));
  w.server.faults().add({.key = "k", .nth = 2}, fault::replace_object());
  CHECK_THAT(w.get(0, 1000), Contains("changed: ") && Contains(w.etag) && Contains("at byte 100"));
  w.server.faults().clear();
  w.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(100));
  w.server.faults().add({.key = "k", .nth = 2}, fault::wrong_etag());
  CHECK_THAT(w.get(0, 1000), Contains("changed: ") && Contains("became \"00000000"));
}

TEST_CASE("without an ETag a broken part is read once more from its start", "[http_storage]") {
  const std::string head = "HTTP/1.1 206 P\r\nContent-Length: 10\r\nContent-Range: bytes 0-9/10\r\n\r\n";
  for (const char* tag : {"", "ETag: W/\"weak\"\r\n"}) {
    std::string with_tag = head;
    with_tag.insert(head.size() - 2, tag);
    test::scripted_server server(
        {scripted_answer{with_tag + "other", then::fin}, scripted_answer{with_tag + "0123456789", then::keep}});
    web w;
    CHECK(w.read_from(server.url(), 0, 10) == "0123456789");
    REQUIRE(server.requests().size() == 2);
    CHECK_THAT(server.requests()[1], Contains("Range: bytes=0-9\r\n") && !Contains("If-Match"));
  }
}

TEST_CASE("redirects are followed, a few of them, never from https to http", "[http_storage]") {
  web w;
  const auto to = [](const std::string& location) {
    return scripted_answer{"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: " + location + "\r\n\r\n", then::keep};
  };
  test::scripted_server away({to(w.server.endpoint() + "/b/k")});
  CHECK(w.read_from(away.url(), 10, 1000) == w.text.substr(10, 1000));
  test::scripted_server circle({to("/again")});
  CHECK_THAT(w.read_from(circle.url(), 0, 10), Contains("too many redirects"));
  test::scripted_server ftp({to("ftp://host/x")});
  CHECK_THAT(w.read_from(ftp.url(), 0, 10), Contains("not an http(s) URL"));
}

TEST_CASE("a redirect to a path stays at the host, whatever the query of the URL holds", "[http_storage]") {
  test::scripted_server server(
      {scripted_answer{"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: /p\r\n\r\n", then::keep},
       scripted_answer{"HTTP/1.1 206 P\r\nContent-Length: 2\r\nContent-Range: bytes 0-1/2\r\n\r\nok", then::keep}});
  web w;
  CHECK(w.read_from(server.url("?sig=a/b"), 0, 2) == "ok");
  REQUIRE(server.requests().size() == 2);
  CHECK_THAT(server.requests()[0], Contains("GET /?sig=a/b HTTP/1.1\r\n"));
  CHECK_THAT(server.requests()[1], Contains("GET /p HTTP/1.1\r\n"));
}

TEST_CASE("an object sent in one go that breaks off is an error", "[http_storage]") {
  web w;
  test::scripted_server server({scripted_answer{
      "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 100000\r\n\r\n" + std::string(70'000, 'x'), then::fin}});
  CHECK_THAT(w.read_from(server.url(), 0, 1000), Contains("127.0.0.1"));
  CHECK(server.requests().size() == 1);
}

namespace {

task<storage::part> read_part(std::string url, std::size_t length, slab_pool slabs) {
  http_storage store;
  shard object(std::move(url), length);
  storage::part p = co_await store.read(std::move(object), std::string(), 0, length, std::move(slabs));
  co_return p;
}

/// What is left of an object that came in one go, by a reader that lets the server do all it can before each piece.
task<std::size_t> read_rest_slowly(std::string url, slab_pool slabs) {
  http_storage store;
  storage::part p = co_await store.read(shard(std::move(url)), std::string(), 0, slabs.slab_bytes(), slabs);
  std::size_t total = p.data.size();
  p.data = bytes();
  for (;;) {
    co_await sleep_for(std::chrono::milliseconds(10));  // the loop jumps there when nothing more can be sent
    const bytes more = co_await p.rest->next();
    if (more.empty()) break;
    total += more.size();
  }
  co_return total;
}

}  // namespace

TEST_CASE("a small object takes memory of its own size, a large part a slab", "[http_storage]") {
  web w;
  w.server.put("b", "small", std::string(1000, 's'));
  const auto loop = make_event_loop();
  const slab_pool slabs(64 * KiB);
  const storage::part small = block_on(*loop, read_part(w.server.endpoint() + "/b/small", 1000, slabs));
  CHECK(small.data.size() == 1000);
  CHECK(small.data.retained() < 2000);
  CHECK(slabs.peak() == 0);
  const storage::part large = block_on(*loop, read_part(w.server.endpoint() + "/b/k", 64 * KiB, slabs));
  CHECK(large.data.size() == 64 * KiB);
  CHECK(slabs.peak() == 1);
}

TEST_CASE("an object that comes in one go holds a few slabs, however fast it comes", "[http_storage]") {
  testing::jumping_loop loop;
  s3_server::options open_to_all;
  open_to_all.anonymous = s3_server::anonymous_access::read;
  s3_server::server server(open_to_all);
  const spawned<void> serving(loop, server.serve());
  server.objects().put("b", "k", std::string(1 * MiB, 'x'));
  server.faults().add({.key = "k"}, fault::ignore_range());
  const slab_pool slabs(64 * KiB);
  CHECK(block_on(loop, read_rest_slowly(server.endpoint() + "/b/k", slabs)) == 1 * MiB);
  CHECK(slabs.peak() <= 3);  // one of window, one with the reader, one being filled
}

TEST_CASE("a presigned URL is a source, whatever bytes its key has", "[http_storage]") {
  s3_server::background server;  // nothing without a signature
  const http_storage storage(http::transport_options(), web::quick());
  const auto loop = make_event_loop();
  const std::string endpoint = server.endpoint();
  s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  const s3::client client{s3::config(o), s3::credentials("test-key", "test-secret")};
  for (const std::string key : {"k", "a b+c/d e+/\xc3\xa4.tar", "%2B%25?&=#;"}) {
    server.put("b", key, std::string_view("content"));
    const auto read = [&](const std::string& url, std::uint64_t offset) {
      return std::string(
          block_on(*loop, storage.read(shard(url), std::string(), offset, 3, slab_pool(64 * KiB))).data.view());
    };
    const std::string url = block_on(*loop, client.presign("s3://b/" + key, 60));
    INFO(url);
    CHECK(read(url, 0) == "con");
    CHECK(read(url, 4) == "ent");
    server.faults().clear();
    server.faults().add({.key = key.c_str(), .times = 1}, fault::refuse(503, "SlowDown"));
    server.faults().add({.key = key.c_str(), .nth = 2}, fault::close_in_body(1));
    CHECK(read(url, 1) == "ont");  // asked for three times, with the signature
    CHECK_THROWS_AS(read(url.substr(0, url.find('?')), 0), http::error);
  }
}
