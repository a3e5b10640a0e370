// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/ops/read_object.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

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

s3::client client_of(const std::string& endpoint, bool validate = true) {
  s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  o.retry.base = std::chrono::microseconds(10);
  o.retry.throttling_base = std::chrono::microseconds(20);
  o.validate_checksums = validate;
  return s3::client(s3::config(o), s3::credentials("test-key", "test-secret"));
}

s3::put_options checked(bool on) {
  s3::put_options o;
  o.checksums = on;
  return o;
}

/// An object of which the store has a checksum, and memory of the caller that is a little longer.
class stored {
 public:
  explicit stored(std::size_t size, bool validate = true, bool checksum = true)
      : content(content_of(size)), client(client_of(server.endpoint(), validate)), memory(size + 64, std::byte('#')) {
    server.objects().put("b", "other", std::string_view("x"));
    block_on(*loop, client.put("s3://b/k", bytes::copy(content), checked(checksum)));
    server.log().clear();
  }

  /// What reading into the caller's memory comes to.
  std::string read() { return read(std::span(memory)); }
  std::string read(std::span<std::byte> into) {
    std::fill(memory.begin(), memory.end(), std::byte('#'));
    return outcome([&] {
      const std::size_t size = block_on(*loop, client.read("s3://b/k", into, &progress));
      CHECK(size == content.size());
      return std::string(reinterpret_cast<const char*>(memory.data()), memory.size()) ==
             content + std::string(64, '#');
    });
  }
  /// And into memory of the library.
  std::string read_own() {
    return outcome([&] { return block_on(*loop, client.read("s3://b/k")).view() == content; });
  }

  /// The ranges that GETs asked for, in order of their beginnings.
  std::vector<std::string> ranges() const {
    std::vector<std::string> all;
    for (const auto& r : server.log().entries()) {
      if (r.method == "GET") all.push_back(r.range);
    }
    return all;
  }

  mutable s3_server::background server;
  const std::unique_ptr<event_loop> loop = make_event_loop();
  const std::string content;
  const s3::client client;
  std::vector<std::byte> memory;
  std::atomic<std::uint64_t> progress{0};

 private:
  template <class Read>
  static std::string outcome(Read read) {
    try {
      return read() ? "right" : "wrong";
    } catch (const changed_error& e) {
      return std::string("changed: ") + e.what();
    } catch (const error& e) {
      return e.what();
    }
  }
};

task<void> pause(duration d) { co_await sleep_for(d); }

constexpr std::size_t large = 20 * MiB + 17;

}  // namespace

TEST_CASE("a whole object goes into the caller's memory, part by part", "[s3][whole]") {
  for (const std::size_t size : {std::size_t(1), std::size_t(MiB - 1), std::size_t(MiB), std::size_t(MiB + 1), large}) {
    stored o(size);
    INFO(size);
    CHECK(o.read() == "right");
    CHECK(o.progress == size);
    CHECK(o.read(std::span(o.memory).first(size)) == "right");
    CHECK(o.read_own() == "right");
  }
}

TEST_CASE("a small object is one GET, of whatever size is not known", "[s3][whole]") {
  stored small(1000, false);
  CHECK(small.read() == "right");
  CHECK(small.read_own() == "right");
  CHECK(small.server.log().size() == 2);
  stored o(large, false);
  CHECK(o.read() == "right");
  CHECK(o.ranges().front() == "bytes=0-1048575");
  for (const auto& r : o.server.log().entries()) {
    if (r.range != "bytes=0-1048575") CHECK_FALSE(r.if_match.empty());
  }
}

TEST_CASE("an empty object has no bytes, in any memory", "[s3][whole]") {
  stored o(0);
  CHECK(o.read() == "right");
  CHECK(o.read(std::span<std::byte>()) == "right");
  CHECK(o.read_own() == "right");
}

TEST_CASE("an object that is longer than the memory is an error with both sizes", "[s3][whole]") {
  stored o(large);
  CHECK(o.read(std::span(o.memory).first(large - 1)) ==
        "s3://b/k: the object's 20971537 bytes are more than the 20971536 of the memory that they are to go to");
  CHECK(o.ranges().size() == 1);
  CHECK(std::count(o.memory.begin() + MiB, o.memory.end(), std::byte('#')) ==
        static_cast<std::ptrdiff_t>(o.memory.size() - MiB));
  CHECK_THAT(o.read(std::span(o.memory).first(100)), Contains("are more than the 100 of the memory"));
  CHECK(std::count(o.memory.begin() + 100, o.memory.end(), std::byte('#')) ==
        static_cast<std::ptrdiff_t>(o.memory.size() - 100));
  CHECK_THAT(o.read(std::span<std::byte>()), Contains("are more than the 0 of the memory"));
}

TEST_CASE("parts that break off, or are refused, are continued in their place", "[s3][whole]") {
  stored o(large);
  o.server.faults().add({.method = "GET", .key = "k", .nth = 1}, fault::close_in_body(500'000));
  o.server.faults().add({.method = "GET", .key = "k", .nth = 3}, fault::reset_in_body(700'001));
  o.server.faults().add({.method = "GET", .key = "k", .nth = 4}, fault::refuse(503, "SlowDown"));
  o.server.faults().add({.method = "GET", .key = "k", .nth = 5}, fault::chunked_cut(100'001));
  CHECK(o.read() == "right");
  CHECK(o.ranges()[1] == "bytes=500000-1048575");
  o.server.faults().clear();
  s3_server::random_faults some;
  some.seed = 7;
  some.probability = 0.3;
  o.server.faults().randomize(some);
  for (int i = 0; i < 5; ++i) {
    CHECK(o.read() == "right");
    CHECK(o.read_own() == "right");
  }
}

TEST_CASE("an object that is replaced while it is read is never mixed", "[s3][whole]") {
  // A server for each reading: requests that the one before dropped may still come in, and would be counted.
  for (const std::uint64_t nth : {2u, 3u}) {
    stored into_given(large);
    into_given.server.faults().add({.method = "GET", .key = "k", .nth = nth}, fault::replace_object());
    CHECK_THAT(into_given.read(), Contains("changed: s3://b/k"));
    stored into_own(large);
    into_own.server.faults().add({.method = "GET", .key = "k", .nth = nth}, fault::replace_object());
    CHECK_THAT(into_own.read_own(), Contains("changed: s3://b/k"));
  }
}

TEST_CASE("a damaged object is read once more, over other connections, then named", "[s3][whole]") {
  for (const std::size_t size : {std::size_t(1000), large}) {
    INFO(size);
    stored o(size);
    o.server.faults().add({.method = "GET", .key = "k", .times = 1}, fault::flipped_bit(123));
    CHECK(o.read() == "right");
    CHECK(o.progress == size);
    o.server.faults().clear();
    o.server.faults().add({.method = "GET", .key = "k", .times = 1}, fault::flipped_bit(123));
    CHECK(o.read_own() == "right");
    o.server.faults().clear();
    s3_server::object damaged(bytes::copy(o.content));
    damaged.checksums = {{"x-amz-checksum-crc32c", "QvlYBw=="}};
    o.server.objects().put("b", "k", std::move(damaged));
    CHECK_THAT(o.read(), Contains("s3://b/k: the bytes do not have the crc32c of the object") &&
                             Contains("read twice, and both times the same: it is so in the store"));
    CHECK_THAT(o.read_own(), Contains("read twice, and both times the same: it is so in the store"));
  }
  stored blind(large, false);
  blind.server.faults().add({.method = "GET", .key = "k"}, fault::flipped_bit(123));
  CHECK(blind.read() == "wrong");
  stored some(large);
  some.server.faults().add({.method = "GET", .key = "k"}, fault::flipped_bit(123));
  CHECK_THAT(some.read(), Contains("read twice"));
  stored none(large, true, false);
  CHECK(none.read() == "right");
}

TEST_CASE("a store that does not say what was asked for is refused", "[s3][whole]") {
  stored o(large);
  o.server.faults().add({.method = "GET", .key = "k"}, fault::ignore_range());
  CHECK_THAT(o.read(), Contains("s3://b/k"));
  CHECK(std::count(o.memory.begin() + MiB, o.memory.end(), std::byte('#')) ==
        static_cast<std::ptrdiff_t>(o.memory.size() - MiB));
  o.server.faults().clear();
  o.server.faults().add({.method = "GET", .key = "k"}, fault::no_etag());
  CHECK_THAT(o.read(), Contains("sent no ETag"));
}

TEST_CASE("memory is not written after its read was dropped", "[s3][whole]") {
  stored o(large);
  bool all_came = false;
  for (std::int64_t after = 0; after < 60'000 && !all_came; after = after * 3 / 2 + 100) {
    // Memory of its own size, which the address sanitizer watches.
    auto memory = std::make_unique<std::vector<std::byte>>(large);
    spawned<std::size_t> reading(*o.loop, o.client.read("s3://b/k", std::span(*memory)));
    block_on(*o.loop, pause(std::chrono::microseconds(after)));
    all_came = reading.done();
    reading = spawned<std::size_t>();
    memory.reset();
    block_on(*o.loop, pause(std::chrono::milliseconds(1)));
  }
  CHECK(o.read() == "right");
}

TEST_CASE("an object is removed; one that is not there is fine", "[s3][remove]") {
  stored o(10);
  block_on(*o.loop, o.client.remove("s3://b/k"));
  CHECK_THAT(o.read(), Contains("404"));
  block_on(*o.loop, o.client.remove("s3://b/k"));
  o.server.faults().add({.method = "DELETE", .nth = 1}, fault::refuse(503, "SlowDown"));
  o.server.faults().add({.method = "DELETE", .nth = 2}, fault::reset_before_head());
  block_on(*o.loop, o.client.remove("s3://b/other"));
  o.server.faults().clear();
  o.server.faults().add({.method = "DELETE"}, fault::refuse(404, "NoSuchKey"));
  block_on(*o.loop, o.client.remove("s3://b/other"));
  o.server.faults().clear();
  CHECK_THROWS_WITH(block_on(*o.loop, o.client.remove("s3://nowhere/k")), Contains("NoSuchBucket"));
  CHECK_THROWS_AS(block_on(*o.loop, o.client.remove("s3://b")), configuration_error);
  s3::config_options anonymous;
  anonymous.endpoint = o.server.endpoint();
  const s3::client stranger{s3::config(anonymous)};
  CHECK_THROWS_WITH(block_on(*o.loop, stranger.remove("s3://b/k")), Contains("AccessDenied"));
}

TEST_CASE("a HEAD that is refused ends no read, and one that fails says what it was for", "[s3][whole]") {
  s3_server::background server;
  const std::string content(3 << 20, 'x');
  server.put("b", "k", content);
  s3::config_options o;
  const std::string endpoint = server.endpoint();
  o.endpoint = endpoint;
  o.region = "us-east-1";
  o.retry.base = std::chrono::microseconds(10);
  const s3::client c(s3::config(o), s3::credentials("test-key", "test-secret"));
  const auto loop = make_event_loop();
  for (const int status : {400, 401, 403, 404, 405, 501}) {
    INFO(status);
    server.faults().clear();
    server.faults().add({.method = "HEAD"}, s3_server::fault::refuse(status, "AccessDenied"));
    test::captured_stderr said(test::captured_stderr::into::pipe);
    CHECK((block_on(*loop, c.read("s3://b/k")).view() == content));
    const std::string text = said.text();
    CHECK_THAT(text, Catch::Matchers::Contains("refuses HEAD of objects in b (" + std::to_string(status)) &&
                         Catch::Matchers::Contains("AWS_RESPONSE_CHECKSUM_VALIDATION"));
  }
  for (const s3_server::fault& f :
       {s3_server::fault::refuse(500, "InternalError"), s3_server::fault::reset_before_head()}) {
    server.faults().clear();
    server.faults().add({.method = "HEAD"}, f);
    CHECK_THROWS_WITH(block_on(*loop, c.read("s3://b/k")),
                      Catch::Matchers::Contains("asked for its checksum, by a HEAD; AWS_RESPONSE_CHECKSUM_VALIDATION"));
  }
}
