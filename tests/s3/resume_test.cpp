// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/ops/get_object.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using s3_server::fault;

namespace {

std::string content_of(std::size_t size) {
  rng random(size);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>('a' + random.below(26));
  return text;
}

s3::client client_of(const std::string& endpoint, duration stall = std::chrono::seconds(30)) {
  s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  o.retry.base = std::chrono::microseconds(10);
  o.retry.throttling_base = std::chrono::microseconds(20);
  http::transport_options t;
  t.stall_timeout = stall;
  return s3::client(s3::config(o), std::make_shared<s3::fixed_credentials>(s3::credentials("test-key", "test-secret")),
                    t);
}

/// An object of 300,000 bytes with faults, read by parts of at most a slab of 256 KiB.
class faulty {
 public:
  static constexpr std::size_t size = 300'000;

  explicit faulty(duration stall = std::chrono::seconds(30)) : client_(client_of(server.endpoint(), stall)) {
    etag = server.put("b", "k", content);
  }

  /// The part, or what went wrong.
  std::string get(std::uint64_t offset, std::size_t length, const std::string& if_match = std::string()) {
    const std::string what = get_any(offset, length, if_match);
    return what.size() > 400 && what != expected(offset, length) ? "other bytes" : what;
  }

  /// The ranges of the requests so far.
  std::vector<std::string> ranges() const {
    std::vector<std::string> all;
    for (const auto& r : server.log().entries()) all.push_back(r.range);
    return all;
  }
  std::string expected(std::size_t offset, std::size_t length) const { return content.substr(offset, length); }

  const std::string content = content_of(size);
  mutable s3_server::background server;
  std::string etag;
  slab_pool slabs{256 * KiB};

 private:
  std::string get_any(std::uint64_t offset, std::size_t length, const std::string& if_match) {
    const auto loop = make_event_loop();
    try {
      s3::object_part p = block_on(*loop, client_.get("s3://b/k", offset, length, if_match, slabs));
      CHECK(p.object.size == size);
      CHECK(p.object.etag == etag);
      return std::string(p.data.view());
    } catch (const changed_error& e) {
      return std::string("changed: ") + e.what();
    } catch (const error& e) {
      return e.what();
    }
  }

  s3::client client_;
};

using ranges = std::vector<std::string>;

}  // namespace

TEST_CASE("a body that breaks off goes on at the next byte, with If-Match", "[s3][resume]") {
  faulty o;
  o.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(70'001));
  o.server.faults().add({.key = "k", .nth = 2}, fault::close_in_body(80'000));
  CHECK((o.get(1000, 200'000) == o.expected(1000, 200'000)));
  CHECK(o.ranges() == ranges{"bytes=1000-200999", "bytes=71001-200999", "bytes=151001-200999"});
  const auto asked = o.server.log().entries();
  CHECK(asked[0].if_match.empty());
  CHECK(asked[1].if_match == o.etag);
  CHECK(asked[2].if_match == o.etag);
  CHECK(o.slabs.peak() == 1);  // what had come stayed where it was
}

TEST_CASE("a break at any byte is mended", "[s3][resume]") {
  faulty o;
  for (std::uint64_t at : {0u, 1u, 511u, 16'384u, 99'998u, 99'999u}) {
    o.server.faults().clear();
    o.server.faults().add({.key = "k", .times = 1}, fault::close_in_body(at));
    CHECK((o.get(7, 100'000) == o.expected(7, 100'000)));
    o.server.faults().clear();
    o.server.faults().add({.key = "k", .times = 1}, fault::reset_in_body(at));
    CHECK((o.get(7, 100'000, o.etag) == o.expected(7, 100'000)));
    o.server.faults().clear();
    o.server.faults().add({.key = "k", .times = 1}, fault::chunked_cut(at));
    CHECK((o.get(7, 100'000) == o.expected(7, 100'000)));
  }
  // The end of the object is nearer than the end of the part.
  o.server.faults().clear();
  o.server.faults().add({.key = "k", .times = 1}, fault::close_in_body(40'000));
  CHECK((o.get(200'000, 200'000) == o.expected(200'000, 100'000)));
}

TEST_CASE("small parts, which have memory of their own, are resumed too", "[s3][resume]") {
  faulty o;
  o.server.faults().add({.key = "k", .times = 1}, fault::close_in_body(600));
  CHECK((o.get(0, 1000) == o.expected(0, 1000)));
  CHECK(o.ranges() == ranges{"bytes=0-999", "bytes=600-999"});
  CHECK(o.slabs.peak() == 0);
}

TEST_CASE("a body that stalls is given up and goes on at the next byte", "[s3][resume]") {
  faulty o(std::chrono::milliseconds(50));
  o.server.faults().add({.key = "k", .times = 1}, fault::stall_body(123'456));
  CHECK((o.get(0, 200'000) == o.expected(0, 200'000)));
  CHECK(o.ranges() == ranges{"bytes=0-199999", "bytes=123456-199999"});
}

TEST_CASE("refusals and broken heads between two bodies lose nothing", "[s3][resume]") {
  faulty o;
  const fault between[] = {fault::refuse(503, "SlowDown"),    fault::close_before_head(), fault::close_in_head(30),
                           fault::wrong_content_range(),      fault::no_content_range(),  fault::ignore_range(),
                           fault::two_content_lengths(),      fault::garbage_status(),    fault::page(200),
                           fault::error_in_success("Broken"), fault::reset_before_head()};
  for (const fault& f : between) {
    o.server.faults().clear();
    o.server.log().clear();
    o.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(70'000));
    o.server.faults().add({.key = "k", .nth = 2}, f);
    CHECK((o.get(0, 200'000) == o.expected(0, 200'000)));
    const ranges asked = o.ranges();  // what the server ignores it does not log
    CHECK(asked.size() == 3);
    CHECK(asked.back() == "bytes=70000-199999");
  }
}

TEST_CASE("an object that is replaced meanwhile is named with both versions", "[s3][resume]") {
  faulty o;
  o.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(70'000));
  o.server.faults().add({.key = "k", .nth = 2}, fault::replace_object());
  const std::string before = o.etag;
  const std::string what = o.get(0, 200'000);
  const std::string now = o.server.objects().get("b", "k")->etag;
  CHECK(now != before);
  CHECK_THAT(what, Contains("changed: s3://b/k at byte 70000") && Contains(before) && Contains(now));
  // The same for a part that was to be of a version known before, resumed or not.
  o.server.faults().clear();
  CHECK_THAT(o.get(0, 1000, before), Contains("changed: ") && Contains(before) && Contains(now));
  // A store that does not look at If-Match shows the change by its ETag.
  o.etag = now;
  o.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(70'000));
  o.server.faults().add({.key = "k", .nth = 2}, fault::wrong_etag());
  CHECK(o.get(0, 200'000) == o.expected(0, 200'000));  // one answer alone: a wrong bit on its way
  o.server.faults().clear();
  o.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(70'000));
  o.server.faults().add({.key = "k", .nth = 2, .times = 2}, fault::wrong_etag());
  CHECK_THAT(o.get(0, 200'000), Contains("changed: ") && Contains(now) && Contains("000000000000"));
}

TEST_CASE("an object that has shrunk meanwhile has changed, one that is gone is gone", "[s3][resume]") {
  faulty o;
  CHECK_THAT(o.get(faulty::size, 1000, o.etag), Contains("changed: s3://b/k at byte 300000"));
  CHECK_THAT(o.get(faulty::size, 1000), Contains("416 InvalidRange"));
  o.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(70'000));
  o.server.faults().add({.key = "k", .nth = 2}, fault::refuse(416, "InvalidRange"));
  CHECK_THAT(o.get(0, 200'000), Contains("changed: "));
  o.server.faults().clear();
  o.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(70'000));
  o.server.faults().add({.key = "k", .nth = 2}, fault::refuse(404, "NoSuchKey"));
  CHECK_THAT(o.get(0, 200'000), Contains("404 NoSuchKey"));
}

TEST_CASE("parts of an object without an ETag are refused, a whole one is not", "[s3][resume]") {
  faulty o;
  o.server.faults().add({.key = "k"}, fault::no_etag());
  CHECK_THAT(o.get(0, 1000), Contains("s3://b/k") && Contains("no ETag"));
  CHECK_THAT(o.get(1000, 1000), Contains("no ETag"));
  CHECK(o.server.log().entries().size() == 6);  // it might have been one answer only
  o.etag.clear();
  slab_pool large(512 * KiB);
  std::swap(o.slabs, large);
  CHECK((o.get(0, 400'000) == o.content));
}

TEST_CASE("a link that breaks again and again is followed as long as it moves", "[s3][resume]") {
  faulty o;
  o.server.faults().add({.key = "k"}, fault::close_in_body(70'000));
  CHECK((o.get(0, 262'144) == o.expected(0, 262'144)));
  o.server.faults().clear();
  o.server.log().clear();
  o.server.faults().add({.key = "k"}, fault::close_in_body(1));
  CHECK_THAT(o.get(0, 262'144), Contains("s3://b/k") || Contains("127.0.0.1"));
  CHECK(o.server.log().entries().size() == 3);
}

TEST_CASE("bytes of an answer that cannot be believed are not continued", "[s3][resume]") {
  using test::scripted_answer;
  using then = scripted_answer::then;
  const auto answer = [](const char* tag, const char* range, const char* body, then after) {
    const int length = range[0] == '0' ? 10 : 5;
    return scripted_answer{std::string("HTTP/1.1 206 Partial\r\nContent-Length: ") + std::to_string(length) + "\r\n" +
                               tag + "Content-Range: bytes " + range + "/10\r\n\r\n" + body,
                           after};
  };
  const char* const tag = "ETag: \"e\"\r\n";
  // The second answer goes on at the right byte, of who knows which version, and breaks off too.
  test::scripted_server server({answer(tag, "0-9", "01234", then::fin), answer("", "5-9", "XX", then::fin),
                                answer(tag, "0-9", "0123456789", then::keep)});
  const s3::client c = client_of(server.url(""));
  const auto loop = make_event_loop();
  CHECK(block_on(*loop, c.get("s3://b/k", 0, 10, "", slab_pool(64 * KiB))).data.view() == "0123456789");
  const std::vector<std::string> asked = server.requests();
  REQUIRE(asked.size() == 3);
  CHECK_THAT(asked[1], Contains("bytes=5-9\r\n"));
  CHECK_THAT(asked[2], Contains("bytes=0-9\r\n"));
}

TEST_CASE("bodies in a coding that was not asked for are refused; what is stored in one is given as it is",
          "[s3][resume]") {
  using test::scripted_answer;
  const auto get = [](const std::string& fields, const std::string& body) {
    test::scripted_server server({scripted_answer{
        "HTTP/1.1 206 Partial\r\nETag: \"e\"\r\nContent-Range: bytes 0-3/4\r\n" + fields + "\r\n" + body,
        scripted_answer::then::fin}});  // the second try has another connection, and the server one at a time
    const s3::client c = client_of(server.url(""));
    const auto loop = make_event_loop();
    try {
      return std::string(block_on(*loop, c.get("s3://b/k", 0, 4, "", slab_pool(64 * KiB))).data.view());
    } catch (const error& e) {
      return std::string(e.what());
    }
  };
  CHECK(get("Content-Length: 4\r\nContent-Encoding: gzip\r\n", "abcd") == "abcd");
  CHECK_THAT(get("Content-Length: 4\r\nTransfer-Encoding: gzip\r\n", "abcd"), Contains("ncoding"));
  CHECK_THAT(get("Transfer-Encoding: gzip, chunked\r\n", "4\r\nabcd\r\n0\r\n\r\n"), Contains("ncoding"));
  CHECK_THAT(get("Transfer-Encoding: chunked\r\n", "6\r\nabcdef\r\n0\r\n\r\n"), Contains("6 bytes instead of 4"));
  CHECK_THAT(get("Transfer-Encoding: chunked\r\n", "2\r\nab\r\n0\r\n\r\n"), Contains("2 bytes instead of 4"));
}

// RFC 9110, 15.3.7: a server may send less than the range that it was asked for.
TEST_CASE("a store that sends only the beginning of a range is asked for the rest", "[s3][resume]") {
  using test::scripted_answer;
  const std::string thirty = "abcdefghijklmnopqrstuvwxyz0123";
  // A second try has another connection, and the server serves one at a time: what it follows ends its own.
  const auto answer = [&](std::size_t first, std::size_t last, const std::string& fields,
                          scripted_answer::then after = scripted_answer::then::keep) {
    return scripted_answer{"HTTP/1.1 206 Partial\r\n" + fields +
                               "Content-Length: " + std::to_string(last - first + 1) + "\r\nContent-Range: bytes " +
                               std::to_string(first) + "-" + std::to_string(last) + "/30\r\n\r\n" +
                               thirty.substr(first, last - first + 1),
                           after};
  };
  const auto get = [](test::scripted_server& server, std::uint64_t offset, std::size_t length) {
    const s3::client c = client_of(server.url(""));
    const auto loop = make_event_loop();
    try {
      return std::string(block_on(*loop, c.get("s3://b/k", offset, length, "", slab_pool(64 * KiB))).data.view());
    } catch (const error& e) {
      return std::string(e.what());
    }
  };
  const std::string tag = "ETag: \"e\"\r\n";
  {
    std::vector<scripted_answer> three_by_three;
    for (std::size_t i = 0; i < 30; i += 3) three_by_three.push_back(answer(i, i + 2, tag));
    test::scripted_server server(three_by_three);
    CHECK(get(server, 0, 30) == thirty);
    const std::vector<std::string> asked = server.requests();
    REQUIRE(asked.size() == 10);
    CHECK_THAT(asked[9], Contains("bytes=27-29\r\n") && Contains("\"e\"\r\n"));
  }
  {
    test::scripted_server server({answer(5, 9, tag), answer(10, 29, "ETag: \"f\"\r\n", scripted_answer::then::fin),
                                  answer(5, 29, "ETag: \"f\"\r\n")});
    CHECK_THAT(get(server, 5, 100), Contains("ETag \"e\" became \"f\""));  // whichever answer follows
  }
  {
    test::scripted_server server({answer(0, 9, "x-amz-request-id: R\r\n", scripted_answer::then::fin)});
    CHECK_THAT(get(server, 0, 30), Contains("sent 10 of the 30 bytes that it was asked for"));
  }
}

TEST_CASE("an empty object is empty, whatever the store answers to a range of it", "[s3][resume]") {
  using test::scripted_answer;
  for (const char* head : {"200 OK\r\n", "206 Partial\r\nContent-Range: bytes */0\r\n",
                           "416 Range\r\nContent-Range: bytes */0\r\n"}) {
    INFO(head);
    test::scripted_server server(
        {scripted_answer{std::string("HTTP/1.1 ") + head + "ETag: \"e\"\r\nContent-Length: 0\r\n\r\n",
                         scripted_answer::then::keep},
         scripted_answer{"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\n\r\n",
                         scripted_answer::then::keep}});
    const s3::client c = client_of(server.url(""));
    const auto loop = make_event_loop();
    const s3::object_part p = block_on(*loop, c.get("s3://b/k", 0, 100, "", slab_pool(64 * KiB)));
    CHECK(p.data.empty());
    CHECK(p.object.size == 0);
    CHECK(p.object.etag == "\"e\"");
  }
}

TEST_CASE("an endpoint's scheme is written in either case", "[s3]") {
  faulty store;
  std::string endpoint = store.server.endpoint();
  endpoint.replace(0, 4, "HTTP");
  const s3::client c = client_of(endpoint);
  const auto loop = make_event_loop();
  CHECK(block_on(*loop, c.get("s3://b/k", 0, 10, "", slab_pool(64 * KiB))).data.view() == store.content.substr(0, 10));
}
