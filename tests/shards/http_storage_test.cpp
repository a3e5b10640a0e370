// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/http_storage.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
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

/// A public server with faults and one object.
class web {
 public:
  web() : storage_(http::transport_options(), quick()) { etag = server.put("b", "k", text); }

  /// The part, what is left of an object sent in one go after it, or what went wrong.
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
    return scripted_answer{"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: " + location + "\r\n\r\n", then::fin};
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

namespace {

scripted_answer answer(const std::string& status, const std::string& fields, const std::string& body) {
  return {"HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + fields + "\r\n" + body,
          then::keep};
}
scripted_answer two_bytes() { return answer("206 P", "Content-Range: bytes 0-1/2\r\n", "ok"); }

std::string read_two(const http_storage& from, const std::string& url) {
  const auto loop = make_event_loop();
  try {
    return std::string(block_on(*loop, from.read(shard(url), {}, 0, 2, slab_pool(64 * KiB))).data.view());
  } catch (const error& e) {
    return e.what();
  }
}

/// A token that is renewed each time that a server refuses it.
class renewed_token {
 public:
  scripted_answer answer_to(const std::string& head) {
    if (head.find("authorization: bearer good") != std::string::npos ||
        head.find("Authorization: Bearer good") != std::string::npos) {
      return two_bytes();
    }
    if (renews) current = "good";
    return answer("401 Unauthorized", "WWW-Authenticate: Bearer\r\n", "no");
  }
  bool renews = true;
  std::string current = "worn-out";
};

}  // namespace

TEST_CASE("a bearer token is sent to its host, and asked for again when it is refused", "[http_storage]") {
  renewed_token token;
  test::scripted_server server([&](const std::string& head) { return token.answer_to(head); });
  const std::string host = "127.0.0.1:" + std::to_string(server.port());
  const http_storage web({}, web::quick(), bearer_token(host, [&] { return token.current; }));
  CHECK(read_two(web, server.url()) == "ok");
  REQUIRE(server.requests().size() == 2);
  CHECK_THAT(server.requests()[0], Contains("Authorization: Bearer worn-out\r\n"));
  CHECK_THAT(server.requests()[1], Contains("Authorization: Bearer good\r\n"));

  token = renewed_token();  // which stays as it is
  token.renews = false;
  const std::string why = read_two(web, server.url());
  CHECK_THAT(why, Contains("the server answered 401") && !Contains("worn-out"));
  CHECK(server.requests().size() == 3);

  int n = 0;  // one that changes each time, and is never right
  const http_storage changing({}, web::quick(), bearer_token(host, [&] { return std::to_string(++n); }));
  CHECK_THAT(read_two(changing, server.url()), Contains("the server answered 401"));
  CHECK(server.requests().size() == 5);
}

TEST_CASE("a token does not follow a redirect to another host", "[http_storage]") {
  test::scripted_server there({two_bytes()});
  test::scripted_server here(
      {answer("302 F", "Location: " + there.url("/signed?sig=1") + "\r\n", ""), answer("404 N", "", "gone")});
  const std::string host = "127.0.0.1:" + std::to_string(here.port());
  const http_storage web({}, web::quick(), bearer_token(host, "secret"));
  CHECK(read_two(web, here.url()) == "ok");
  CHECK(read_two(web, here.url()) == "ok");  // where it was redirected to is remembered
  REQUIRE(here.requests().size() == 1);
  CHECK_THAT(here.requests()[0], Contains("Authorization: Bearer secret\r\n"));
  REQUIRE(there.requests().size() == 2);
  for (const std::string& head : there.requests()) CHECK_THAT(head, !Contains("secret") && !Contains("uthorization"));
}

TEST_CASE("fields of a program's own are what a function of the host returns", "[http_storage]") {
  test::scripted_server server({two_bytes()});
  const http_storage web({}, web::quick(), [](const std::string& host) {
    http::headers fields;
    if (host.find("127.0.0.1") == 0) fields.add("X-Api-Key", "k1");
    return fields;
  });
  CHECK(read_two(web, server.url()) == "ok");
  CHECK_THAT(server.requests()[0], Contains("X-Api-Key: k1\r\n"));
  const http_storage wrong({}, web::quick(), [](const std::string&) {
    http::headers fields;
    fields.add("range", "bytes=0-0");
    return fields;
  });
  CHECK_THAT(read_two(wrong, server.url()), Contains("the field range of a request is the library's"));
  const http_storage fails({}, web::quick(), [](const std::string&) -> http::headers { throw io_error("no token"); });
  CHECK(read_two(fails, server.url()) == "no token");
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

TEST_CASE("signed URLs are sent byte for byte", "[http_storage]") {
  const std::string paths[] = {
      // Azure's SAS, Google's V4, S3's and CloudFront's: encoded as each of them likes.
      "/c/a%20b%2Fc+d.tar?sv=2022-11-02&ss=b&se=2026-12-01T00%3A00%3A00Z&sp=r&sig=a%2Bb%2fc%3D",
      "/b/a//./../b.tar?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential=me%40p.iam%2F20261129&X-Goog-Signature=5ab",
      "/b/k?response-content-type=a+b%20c&X-Amz-Credential=A%2F20261129&X-Amz-Signature=5ab&versionId=x=y==",
      "/k?&&Expires=1&Policy=a~b_c-&Signature=a~b/c+d=&Key-Pair-Id=K&=&",
  };
  for (const std::string& path : paths) {
    test::scripted_server server({scripted_answer{"HTTP/1.1 206 Partial\r\nContent-Length: 3\r\n"
                                                  "Content-Range: bytes 0-2/3\r\n\r\nabc",
                                                  then::keep}});
    CHECK(web().read_from(server.url(path), 0, 3) == "abc");
    CHECK_THAT(server.requests().at(0), Catch::Matchers::StartsWith("GET " + path + " HTTP/1.1\r\n"));
  }
}

TEST_CASE("a URL that was signed too long ago is an error that says so, by each store's code", "[http_storage]") {
  struct refused {
    int status;
    std::string body;
    const char* says;
  };
  const std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>";
  const refused answers[] = {
      {403, xml + "AccessDenied</Code><Message>Request has expired</Message><X-Amz-Expires>60</X-Amz-Expires></Error>",
       "; the signature of the URL has expired: it has to be signed anew"},
      {400, xml + "ExpiredToken</Code><Message>The provided token has expired.</Message></Error>",
       "; the signature of the URL has expired: it has to be signed anew"},
      {400, xml + "ExpiredToken</Code><Message>Invalid argument.</Message><Details>The provided token has expired. "
                  "Request signature expired at: 2026-11-28T00:00:00+00:00</Details></Error>",
       "; the signature of the URL has expired: it has to be signed anew"},
      {403, xml + "AuthenticationFailed</Code><Message>Server failed to authenticate the request. Make sure the value "
                  "of Authorization header is formed correctly including the signature.\nRequestId:1\nTime:2026-11-29"
                  "</Message><AuthenticationErrorDetail>Signature not valid in the specified time frame: Start [a] - "
                  "Expiry [b] - Current [c]</AuthenticationErrorDetail></Error>",
       "; the signature of the URL has expired, or does not hold yet: it has to be signed anew"},
      {403, xml + "AuthenticationFailed</Code><Message>Server failed to authenticate.</Message></Error>", ""},
      {403, xml + "AccessDenied</Code><Message>Access Denied</Message></Error>", ""},
  };
  for (const refused& r : answers) {
    test::scripted_server server({scripted_answer{"HTTP/1.1 " + std::to_string(r.status) + " No\r\nContent-Length: " +
                                                      std::to_string(r.body.size()) + "\r\n\r\n" + r.body,
                                                  then::keep}});
    const std::string said = web().read_from(server.url("/b/k?se=1&sig=5ec%2Bret&X-Amz-Signature=5ecret"), 0, 3);
    CHECK_THAT(said, Catch::Matchers::StartsWith(server.url("/b/k") + " at byte 0: the server answered " +
                                                 std::to_string(r.status) + ": ") &&
                         !Contains("5ec"));
    if (*r.says != '\0') CHECK_THAT(said, Catch::Matchers::EndsWith(r.says));
    if (*r.says == '\0') CHECK_THAT(said, !Contains("signed anew"));
    CHECK(server.requests().size() == 1);
  }
}

namespace {

/// The 206 that has bytes `first` to `last` of thirty.
scripted_answer bytes_of_thirty(int first, int last, const std::string& fields = "ETag: \"e\"\r\n") {
  const std::string all = "abcdefghijklmnopqrstuvwxyz0123";
  const auto size = static_cast<std::size_t>(last - first + 1);
  return scripted_answer{"HTTP/1.1 206 Partial\r\n" + fields + "Content-Length: " + std::to_string(size) +
                             "\r\nContent-Range: bytes " + std::to_string(first) + "-" + std::to_string(last) +
                             "/30\r\n\r\n" + all.substr(static_cast<std::size_t>(first), size),
                         then::keep};
}
ranges asked_of(const test::scripted_server& server) {
  ranges all;
  for (const std::string& head : server.requests()) {
    const std::size_t at = head.find("bytes=");
    all.push_back(at == std::string::npos ? "none" : head.substr(at + 6, head.find('\r', at) - at - 6));
  }
  return all;
}

}  // namespace

// RFC 9110, 15.3.7: "A server that is asked for a range may send less".
TEST_CASE("an answer that has only the beginning of the range goes on at the next byte", "[http_storage]") {
  const web w;
  const std::string thirty = "abcdefghijklmnopqrstuvwxyz0123";
  for (const std::string fields : {"ETag: \"e\"\r\n", "ETag: W/\"e\"\r\n", ""}) {
    INFO(fields);
    test::scripted_server server({bytes_of_thirty(2, 9, fields), bytes_of_thirty(10, 10, fields),
                                  bytes_of_thirty(11, 24, fields), bytes_of_thirty(25, 29, fields)});
    CHECK(web().read_from(server.url(), 2, 100) == thirty.substr(2));
    CHECK(asked_of(server) == ranges{"2-101", "10-101", "11-101", "25-101"});
  }
  {
    std::vector<scripted_answer> one_by_one;
    for (int i = 0; i < 30; ++i) one_by_one.push_back(bytes_of_thirty(i, i));
    test::scripted_server server(one_by_one);
    CHECK(web().read_from(server.url(), 0, 30) == thirty);
  }
  // What does not belong together.
  {
    test::scripted_server server({bytes_of_thirty(0, 9), bytes_of_thirty(10, 29, "ETag: \"f\"\r\n")});
    CHECK_THAT(web().read_from(server.url(), 0, 30), Contains("changed: ") && Contains("\"e\" became \"f\""));
  }
  {
    scripted_answer longer = bytes_of_thirty(10, 19, "");
    longer.text.replace(longer.text.find("/30"), 3, "/31");
    test::scripted_server server({bytes_of_thirty(0, 9, ""), longer});
    CHECK_THAT(web().read_from(server.url(), 0, 30), Contains("changed: ") && Contains("30 bytes became 31"));
  }
  {
    test::scripted_server server({bytes_of_thirty(0, 9), bytes_of_thirty(11, 29)});
    CHECK_THAT(web().read_from(server.url(), 0, 30), Contains("asked for bytes 10-29, was sent 11-29"));
  }
}

TEST_CASE("an empty object is empty, whatever the answer to a range of it", "[http_storage]") {
  for (const char* head : {"200 OK\r\n", "206 Partial\r\nContent-Range: bytes */0\r\n",
                           "416 Range\r\nContent-Range: bytes */0\r\n"}) {
    INFO(head);
    test::scripted_server server({{std::string("HTTP/1.1 ") + head + "Content-Length: 0\r\n\r\n", then::keep}});
    const http_storage storage;
    const auto loop = make_event_loop();
    auto reading = storage.read(shard(server.url()), std::string(), 0, 100, slab_pool(64 * KiB));
    const storage::part p = block_on(*loop, std::move(reading));
    CHECK(p.data.empty());
    CHECK(p.total == std::uint64_t(0));
    CHECK(p.rest == nullptr);
  }
  test::scripted_server wrong(
      {{"HTTP/1.1 206 Partial\r\nContent-Range: bytes */0\r\nContent-Length: 2\r\n\r\nab", then::keep}});
  CHECK_THAT(web().read_from(wrong.url(), 0, 100), Contains("Content-Range cannot be read"));
  test::scripted_server longer({{"HTTP/1.1 206 Partial\r\nContent-Range: bytes */0\r\nTransfer-Encoding: "
                                 "chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
                                 then::keep}});
  CHECK_THAT(web().read_from(longer.url(), 0, 100), Contains("the body has 2 bytes instead of 0"));
}

TEST_CASE("schemes are written in either case", "[http_storage]") {
  const http_storage storage;
  for (const char* url : {"http://h/x", "HTTP://h/x", "https://h/x", "Https://h/x", "HTTPS://H/x"}) {
    CHECK(storage.serves(url));
  }
  for (const char* url : {"httpx://h/x", "s3://b/k", "http:/h", "", "HTTP"}) CHECK(!storage.serves(url));
  web w;
  std::string url = w.server.endpoint() + "/b/k";
  url.replace(0, 4, "HTTP");
  CHECK(w.read_from(url, 10, 100) == w.text.substr(10, 100));
}

namespace {

scripted_answer redirect_to(const std::string& location, int status = 302) {
  return {"HTTP/1.1 " + std::to_string(status) + " R\r\nContent-Length: 0\r\nLocation: " + location + "\r\n\r\n",
          then::keep};
}
scripted_answer refusal(int status, const std::string& body) {
  return {"HTTP/1.1 " + std::to_string(status) + " E\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
              body,
          then::keep};
}

}  // namespace

TEST_CASE("Location is any reference to a URI", "[http_storage]") {
  const std::pair<const char*, const char*> table[] = {{"real.tar", "/data/real.tar"},
                                                       {"../x", "/x"},
                                                       {"?v=2", "/data/shard.tar?v=2"},
                                                       {"./a b", "/data/a%20b"},
                                                       {"/y#part", "/y"}};
  for (const int status : {301, 302, 303, 307, 308}) {
    for (const auto& [location, path] : table) {
      INFO(location);
      test::scripted_server server({redirect_to(location, status), bytes_of_thirty(0, 29)});
      CHECK(web().read_from(server.url("/data/shard.tar?sig=secret"), 0, 30).size() == 30);
      REQUIRE(server.requests().size() == 2);
      CHECK_THAT(server.requests()[1], Catch::Matchers::StartsWith(std::string("GET ") + path + " HTTP/1.1\r\n"));
    }
  }
  test::scripted_server target({bytes_of_thirty(0, 29)});
  const std::string host = target.url("").substr(5);
  test::scripted_server other({redirect_to(host + "/x")});
  CHECK(web().read_from(other.url(), 0, 30).size() == 30);
  test::scripted_server loud({redirect_to("HTTP:" + host + "/x")});
  CHECK(web().read_from(loud.url(), 0, 30).size() == 30);
}

TEST_CASE("the redirecting server is asked once for an object, and again when the target has ended", "[http_storage]") {
  const std::string thirty = "abcdefghijklmnopqrstuvwxyz0123";
  const scripted_answer parts[] = {bytes_of_thirty(0, 9), bytes_of_thirty(10, 19), bytes_of_thirty(20, 29)};
  const auto read_all = [](const std::string& url) {
    web w;
    std::string all = w.read_from(url, 0, 10);
    all += w.read_from(url, 10, 10);
    return all + w.read_from(url, 20, 10);
  };
  {
    test::scripted_server target({parts[0], parts[1], parts[2]});
    test::scripted_server first({redirect_to(target.url("/x?X-Amz-Signature=secret"))});
    CHECK(read_all(first.url()) == thirty);
    CHECK(first.requests().size() == 1);
    CHECK(target.requests().size() == 3);
  }
  for (const int status : {400, 401, 403, 404, 410, 500, 503}) {
    INFO(status);
    test::scripted_server target({parts[0], refusal(status, "expired"), parts[1], parts[2]});
    test::scripted_server first({redirect_to(target.url("/1")), redirect_to(target.url("/2"))});
    CHECK(read_all(first.url()) == thirty);
    CHECK(first.requests().size() == 2);
    CHECK_THAT(target.requests()[3], Catch::Matchers::StartsWith("GET /2 "));
  }
  {
    auto gone = std::make_unique<test::scripted_server>(std::vector<scripted_answer>{parts[0]});
    test::scripted_server target({parts[1], parts[2]});
    test::scripted_server first({redirect_to(gone->url()), redirect_to(target.url())});
    web w;
    CHECK(w.read_from(first.url(), 0, 10) == thirty.substr(0, 10));
    gone.reset();
    CHECK(w.read_from(first.url(), 10, 10) == thirty.substr(10, 10));
    CHECK(w.read_from(first.url(), 20, 10) == thirty.substr(20, 10));
    CHECK(first.requests().size() == 2);
  }
  {
    test::scripted_server target({parts[0], refusal(403, "<h1>Request has expired</h1>")});
    test::scripted_server first({redirect_to(target.url("/x?X-Amz-Signature=secret"))});
    web w;
    w.read_from(first.url(), 0, 10);
    const std::string said = w.read_from(first.url(), 10, 10);
    CHECK(said == first.url() + " at byte 10: the server answered 403 at " + target.url("/x") +
                      ": <h1>Request has expired</h1>");
    CHECK(first.requests().size() == 2);
    CHECK(target.requests().size() == 3);
  }
}

TEST_CASE("an error at the target of a redirect is of the shard, and names the server", "[http_storage]") {
  std::string nowhere;
  {
    const test::scripted_server gone({bytes_of_thirty(0, 29)});
    nowhere = gone.url("");
  }
  test::scripted_server first({redirect_to(nowhere + "/x?sig=secret")});
  CHECK_THAT(web().read_from(first.url(), 5, 10), Catch::Matchers::StartsWith(first.url() + " at byte 5: ") &&
                                                      Contains("(" + nowhere + ")") && !Contains("secret"));
}

TEST_CASE("a Content-Encoding reaches the stage that reads lines, from a web server and from S3", "[http_storage]") {
  const std::string brotli = "\x0b\x02\x80hello\n\x03";
  const auto answer = [](const std::string& encoding, const std::string& body) {
    const std::string size = std::to_string(body.size());
    return scripted_answer{"HTTP/1.1 206 Partial Content\r\nETag: \"e\"\r\nContent-Encoding: " + encoding +
                           "\r\nContent-Range: bytes 0-" + std::to_string(body.size() - 1) + "/" + size +
                           "\r\nContent-Length: " + size + "\r\n\r\n" + body};
  };
  const auto read = [](stream<line_batch> in) -> task<std::string> {
    std::string all;
    while (std::optional<line_batch> b = co_await in.next()) {
      for (const std::string_view line : *b) all += std::string(line) + '|';
    }
    co_return all;
  };
  const auto loop = make_event_loop();
  for (const char* encoding : {"br", "gzip, br"}) {
    const test::scripted_server server({answer(encoding, brotli)});
    const auto web = std::make_shared<const http_storage>();
    CHECK_THROWS_WITH(block_on(*loop, read(shards(server.url("/x.txt")) | fetch(web) | lines())),
                      Contains("its Content-Encoding is " + std::string(encoding)));
    const std::string endpoint = server.url("");
    const s3::client c(s3::config({.region = "us-east-1", .endpoint = endpoint, .validate_checksums = false}),
                       s3::credentials("key", "secret"));
    CHECK_THROWS_WITH(block_on(*loop, read(shards("s3://b/x.txt") | fetch(c) | lines())),
                      Contains("its Content-Encoding is " + std::string(encoding)));
  }
  const test::scripted_server plain({answer("identity", "a\nb\n")});
  CHECK(block_on(*loop, read(shards(plain.url("/x.txt")) | fetch(std::make_shared<const http_storage>()) | lines())) ==
        "a|b|");
}
