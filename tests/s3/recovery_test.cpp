// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/client.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/auth/credentials_provider.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using s3_server::fault;

namespace {

const std::string content(1000, 'x');

s3::config config_of(const std::string& endpoint, const char* region = "us-east-1") {
  s3::config_options o;
  o.endpoint = endpoint;
  o.region = region;
  o.retry.base = std::chrono::microseconds(10);
  o.retry.throttling_base = std::chrono::microseconds(20);
  o.retry.max_over_hint = std::chrono::milliseconds(1);
  return s3::config(o);
}
s3::credentials right() { return s3::credentials("test-key", "test-secret"); }

/// Asks for the object, by GET and by HEAD; "1000 1000", or what went wrong.
std::string ask(const s3::client& c, bool head_first = false) {
  const auto loop = make_event_loop();
  const auto get = [&] { return block_on(*loop, c.get("s3://b/k", 0, 64 * KiB, "", slab_pool(64 * KiB))).data.size(); };
  const auto head = [&] { return block_on(*loop, c.head("s3://b/k")).size; };
  try {
    const std::size_t first = head_first ? head() : get();
    const std::size_t second = head_first ? get() : head();
    return std::to_string(first) + " " + std::to_string(second);
  } catch (const error& e) {
    return e.what();
  }
}

/// Expired ones first, the right ones once those have been refused.
class renewed final : public s3::credentials_provider {
 public:
  explicit renewed(bool ever) : ever_(ever) {}
  task<s3::credentials> get() override {
    if (!refused_ || !ever_) co_return s3::credentials("old-key", "old-secret");
    co_return right();
  }
  bool refused(const s3::credentials& used) override {
    CHECK(used.access_key_id() == "old-key");
    refused_ = true;
    return ever_;
  }

 private:
  const bool ever_;
  std::atomic<bool> refused_{false};
};

}  // namespace

TEST_CASE("a clock that is off is put right by the first refusal, of a GET and of a HEAD", "[s3][recovery]") {
  for (const std::int64_t offset : {-3600, 3600}) {
    for (const bool head_first : {false, true}) {
      s3_server::options o;
      o.clock_offset = offset;
      s3_server::background server(o);
      server.put("b", "k", content);
      const s3::client c(config_of(server.endpoint()), right());
      CHECK(ask(c, head_first) == "1000 1000");
      CHECK(ask(c) == "1000 1000");
      CHECK(server.log().entries().size() == 5);  // one refusal: the offset is kept
    }
  }
}

TEST_CASE("a bucket elsewhere is asked for in its region from the first refusal on", "[s3][recovery]") {
  for (const bool head_first : {false, true}) {
    s3_server::options o;
    o.region = "eu-west-1";
    s3_server::background server(o);
    server.put("b", "k", content);
    const s3::client c(config_of(server.endpoint()), right());
    CHECK(ask(c, head_first) == "1000 1000");
    CHECK(ask(c) == "1000 1000");
    CHECK(server.log().entries().size() == 5);
  }
}

TEST_CASE("expired credentials are renewed once", "[s3][recovery]") {
  s3_server::options o;
  o.keys["old-key"] = s3_server::access_key("old-secret", "", true);
  s3_server::background server(o);
  server.put("b", "k", content);
  const s3::client c(config_of(server.endpoint()), std::make_shared<renewed>(true));
  CHECK(ask(c) == "1000 1000");
  CHECK(server.log().entries().size() == 3);
  const s3::client never(config_of(server.endpoint()), std::make_shared<renewed>(false));
  CHECK_THAT(ask(never), Catch::Matchers::Contains("ExpiredToken"));
  CHECK(server.log().entries().size() == 5);
}

TEST_CASE("refusals that pass are waited for, with the store's own hint", "[s3][recovery]") {
  s3_server::background server;
  server.put("b", "k", content);
  const s3::client c(config_of(server.endpoint()), right());
  const fault passing[] = {fault::refuse(500, "InternalError"),
                           fault::refuse(503, "SlowDown").with_field("Retry-After", "1"),
                           fault::refuse(429, "TooManyRequests").with_field("x-amz-retry-after", "30000"),
                           fault::refuse(400, "RequestTimeout"),
                           fault::refuse(502, "BadGateway"),
                           fault::page(504)};
  for (const fault& f : passing) {
    server.faults().clear();
    server.faults().add({.key = "k", .times = 2}, f);
    CHECK(ask(c) == "1000 1000");
    CHECK(server.faults().injected() >= 2);
  }
  server.faults().clear();
  server.faults().add({.key = "k"}, fault::refuse(500, "InternalError"));
  CHECK_THAT(ask(c), Catch::Matchers::Contains("500 InternalError"));
  server.faults().clear();
  server.log().clear();
  server.faults().add({.key = "k"}, fault::refuse(403, "AccessDenied"));
  CHECK_THAT(ask(c), Catch::Matchers::Contains("403 AccessDenied"));
  CHECK(server.log().entries().size() == 1);
}

TEST_CASE("no way to the store: the failure is named, after all attempts", "[s3][recovery]") {
  using Catch::Matchers::Contains;
  CHECK_THAT(ask(s3::client(config_of("http://127.0.0.1:1"), right())), Contains("127.0.0.1:1"));
  // A resolver that answers says no; one that does not is given up on.
  http::transport_options quick;
  quick.connect_timeout = std::chrono::milliseconds(100);
  const s3::client nowhere(config_of("http://no-such-host.invalid"), std::make_shared<s3::fixed_credentials>(right()),
                           quick);
  CHECK_THAT(ask(nowhere), Contains("no-such-host.invalid"));
  using handshake = s3_server::tls_options::handshake;
  for (const handshake greeting : {handshake::reset, handshake::close, handshake::plain_text}) {
    s3_server::options o;
    o.tls.enabled = true;
    o.tls.greeting = greeting;
    s3_server::background server(o);
    http::transport_options t;
    t.ca_file = server.certificate_file();
    const s3::client c(config_of(server.endpoint()), std::make_shared<s3::fixed_credentials>(right()), t);
    CHECK_THAT(ask(c), Contains("127.0.0.1"));
    CHECK(server.stats().connections == 3);
  }
  s3_server::options o;
  o.tls.enabled = true;
  o.tls.expired = true;
  s3_server::background server(o);
  http::transport_options t;
  t.ca_file = server.certificate_file();
  const s3::client c(config_of(server.endpoint()), std::make_shared<s3::fixed_credentials>(right()), t);
  CHECK_THAT(ask(c), Contains("certificate"));
  CHECK(server.stats().connections == 1);  // asking again would not help
}
