// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/client.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/auth/credentials_provider.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/scripted_server.hpp"

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
  for (const char* code : {"InvalidAccessKeyId", "InvalidTokenId", "InvalidToken"}) {
    s3_server::background other;
    other.put("b", "k", content);
    other.faults().add({.times = 1}, fault::refuse(403, code));
    CHECK(ask(s3::client(config_of(other.endpoint()), std::make_shared<renewed>(true))) == "1000 1000");
  }
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

namespace {

/// What an s3::error says and its code, or another error and its object.
std::string refused_with(const std::string& head, const std::string& body, const std::string& verb = "GET") {
  test::scripted_server store({{"HTTP/1.1 " + head + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                                    (verb == "HEAD" ? std::string() : body),
                                test::scripted_answer::then::fin}});
  const s3::client c(config_of(store.url("")), std::make_shared<s3::fixed_credentials>(right()));
  const auto loop = make_event_loop();
  try {
    if (verb == "HEAD") {
      block_on(*loop, c.head("s3://b/k"));
    } else if (verb == "DELETE") {
      block_on(*loop, c.remove("s3://b/k"));
    } else if (verb == "PUT") {
      block_on(*loop, c.put("s3://b/k", bytes::copy("x")));
    } else if (verb == "whole") {
      block_on(*loop, c.get("s3://b/k", 0, 10, "", slab_pool(64 * KiB), {.size = 10}));
    } else {
      block_on(*loop, c.get("s3://b/k", 0, 10, "", slab_pool(64 * KiB)));
    }
    return "an answer";
  } catch (const s3::error& e) {
    std::string said = e.what();
    const std::string server = store.url("");
    if (const std::size_t at = said.find(server); at != std::string::npos) said.replace(at, server.size(), "SERVER");
    return "[" + e.code() + "] " + said;
  }
}

}  // namespace

TEST_CASE("a code is S3's only where S3 has said it; else the first line of what came is shown", "[s3][recovery]") {
  const std::string at = "s3://b/k at byte 0: ";
  CHECK(refused_with("403 F", "<html><body><h1>Blocked by policy</h1></body></html>\nmore") ==
        "[] " + at + "403: the answer is not S3's (SERVER): <html><body><h1>Blocked by policy</h1></body></html>");
  CHECK(refused_with("403 F", "<!DOCTYPE html>\r\n<html>\r\n  <title>No way</title>\r\n") ==
        "[] " + at + "403: the answer is not S3's (SERVER): <!DOCTYPE html> <html> <title>No way</title>");
  CHECK(refused_with("404 N", "{\"error\": \"no such route\"}") ==
        "[] " + at + "404: the answer is not S3's (SERVER): {\"error\": \"no such route\"}");
  CHECK(refused_with("407 P", "log in first") ==
        "[] " + at + "407: the answer is not S3's (SERVER): log in first");
  CHECK(refused_with("412 P", "\n\n  what?  \n") == "[] " + at + "412: the answer is not S3's (SERVER): what?");
  CHECK(refused_with("403 F", "") == "[] " + at + "403: Forbidden");
  CHECK(refused_with("404 N", "x", "HEAD") == "[] s3://b/k: 404: Not Found");
  CHECK(refused_with("404 N\r\nx-amz-request-id: R", "x", "HEAD") ==
        "[NoSuchKey] s3://b/k: 404 NoSuchKey: the answer to a HEAD has no text (request id R)");
  CHECK(refused_with("418 T", "") == "[] " + at + "418: the store refused the request");
  CHECK(refused_with("403 F", "<Error><Code>AccessDenied</Code><Message>no</Message></Error>") ==
        "[AccessDenied] " + at + "403 AccessDenied: no");
  CHECK(refused_with("403 F", "<Error><Code>Acc") ==
        "[] " + at + "403: the answer is not S3's (SERVER): <Error><Code>Acc");
  CHECK(refused_with("403 F", std::string(300, 'x')) ==
        "[] " + at + "403: the answer is not S3's (SERVER): " + std::string(200, 'x') + "...");
  CHECK(refused_with("403 F", std::string("a\0\x1b[31mb", 8)) ==
        "[] " + at + "403: the answer is not S3's (SERVER): a\\x00\\x1b[31mb");
  CHECK(refused_with("403 F", std::string(100 * KiB, 'y')) ==
        "[] " + at + "403: the answer is not S3's (SERVER): " + std::string(200, 'y') + "...");
}

TEST_CASE("a refusal of a proxy on the way names its address", "[s3][recovery]") {
  const auto loop = make_event_loop();
  const auto said = [&](const std::string& endpoint, const std::string& answer, const std::string& verb) {
    const test::scripted_server proxy({{answer, test::scripted_answer::then::fin}});
    http::transport_options t;
    t.proxy = "http://user:hidden@127.0.0.1:" + std::to_string(proxy.port());
    const s3::client c(config_of(endpoint), std::make_shared<s3::fixed_credentials>(right()), t);
    const std::string shown = "the proxy http://127.0.0.1:" + std::to_string(proxy.port());
    try {
      if (verb == "HEAD") block_on(*loop, c.head("s3://b/k"));
      if (verb == "GET") block_on(*loop, c.get("s3://b/k", 0, 10, "", slab_pool(64 * KiB)));
    } catch (const error& e) {
      CHECK(proxy.requests().size() == 1);
      CHECK_THAT(e.what(), !Catch::Matchers::Contains("hidden"));
      std::string text = e.reason();
      const std::size_t at = text.find(shown);
      return at == std::string::npos ? text : text.replace(at, shown.size(), "PROXY");
    }
    return std::string("an answer");
  };
  for (const char* status : {"401", "407"}) {
    const std::string answer = "HTTP/1.1 " + std::string(status) + " No\r\nContent-Length: 0\r\n\r\n";
    for (const char* verb : {"GET", "HEAD"}) {
      CHECK(said("http://store.example", answer, verb) ==
            std::string(status) + ": the answer is not S3's (http://store.example, through PROXY)");
      CHECK_THAT(said("https://store.example", answer, verb),
                 Catch::Matchers::StartsWith("PROXY answers " + std::string(status)) &&
                     Catch::Matchers::Contains("(https://store.example)"));
    }
  }
}

TEST_CASE("a success that no store sends is an error, and never an empty object", "[s3][recovery]") {
  const std::string from = ": the answer is not S3's (SERVER): status ";
  for (const char* verb : {"GET", "whole", "HEAD", "DELETE"}) {
    INFO(verb);
    const std::string at = std::string("[] s3://b/k") + (*verb == 'G' ? " at byte 0" : "");
    CHECK(refused_with("202 A\r\nx-amzn-waf-action: challenge", "", verb) == at + from + "202, no field of S3's");
    CHECK(refused_with("201 C\r\nETag: \"e\"", "", verb) == at + from + "201, no field of S3's");
    if (*verb == 'D') continue;
    CHECK(refused_with("200 O", "", verb) == at + from + "200, no field of S3's");
    CHECK(refused_with("200 O\r\nx-amzn-waf-action: challenge", "", verb) == at + from + "200, no field of S3's");
    CHECK(refused_with("204 N", "", verb) == at + from + "204, no field of S3's");
    if (*verb == 'w') continue;  // of another length
    for (const char* field : {"x-amz-request-id: R", "ETag: \"e\""}) {
      CHECK(refused_with(std::string("200 O\r\n") + field, "", verb) == "an answer");
    }
  }
  CHECK(refused_with("200 O", "<h1>Log in</h1>") ==
        "[] s3://b/k at byte 0" + from + "200, no field of S3's: <h1>Log in</h1>");
  CHECK(refused_with("204 N", "", "DELETE") == "an answer");
}

TEST_CASE("an error document in a success keeps its code", "[s3][recovery]") {
  const std::string document = "<Error><Code>InternalError</Code><Message>no</Message></Error>";
  for (const char* verb : {"GET", "whole", "DELETE", "PUT"}) {
    INFO(verb);
    CHECK_THAT(refused_with("200 O\r\nx-amz-request-id: R", document, verb),
               Catch::Matchers::Contains("[InternalError] s3://b/k"));
  }
}

TEST_CASE("what a page repeats of the request is shown without its secrets", "[s3][recovery]") {
  http::request asked("https://h/b/k?X-Amz-Signature=0123456789abcdef");
  asked.fields.add("authorization", "AWS4-HMAC-SHA256 Credential=AK/2026, Signature=beefbeef");
  asked.fields.add("x-amz-security-token", "SESSION+TOKEN==");
  const char* const pages[] = {
      "denied: AWS4-HMAC-SHA256 Credential=AK/2026, Signature=beefbeef",
      "denied: SESSION+TOKEN==",
      "GET /b/k?X-Amz-Signature=0123456789abcdef refused",
      "<a href=\"https://user:pw@h/b?X-Amz-Credential=AK&sig=beefbeef\">denied</a>",
      "{\"authorization\": \"Basic beefbeef\", \"token\": \"SESSION+TOKEN==\"}",
      "Authorization: Bearer beefbeef",
      "X-Amz-Signature%3Dbeefbeef&password=pw",
  };
  for (const char* page : pages) {
    const std::string shown = http::first_words(page, asked);
    INFO(shown);
    for (const char* secret : {"beefbeef", "SESSION", "0123456789abcdef", ":pw", "=pw", "AK/2026"}) {
      CHECK(shown.find(secret) == std::string::npos);
    }
    CHECK(shown.find("...") != std::string::npos);
  }
  CHECK(http::first_words("The security token included in the request is invalid: try again", asked) ==
        "The security token included in the request is invalid: try again");
}

TEST_CASE("an error of the way is about the object, and names the endpoint in its text", "[s3][recovery]") {
  const auto loop = make_event_loop();
  const s3::client nowhere(config_of("http://127.0.0.1:1"), std::make_shared<s3::fixed_credentials>(right()));
  try {
    block_on(*loop, nowhere.get("s3://b/k", 7, 10, "", slab_pool(64 * KiB)));
    FAIL("an answer");
  } catch (const http::error& e) {
    CHECK(e.object() == "s3://b/k");
    CHECK(e.offset() == std::uint64_t(7));
    CHECK_THAT(e.reason(), Catch::Matchers::Contains("(http://127.0.0.1:1)"));
  }
  using then = test::scripted_answer::then;
  for (const test::scripted_answer& answer :
       {test::scripted_answer{"", then::fin}, test::scripted_answer{"SSH-2.0\r\n\r\n", then::fin},
        test::scripted_answer{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", then::fin},
        test::scripted_answer{"HTTP/1.1 206 OK\r\nx-amz-request-id: R\r\nContent-Range: bytes 7-16/99\r\n"
                              "Content-Length: 10\r\n\r\nx",
                              then::fin}}) {
    test::scripted_server store({answer});
    const s3::client c(config_of(store.url("")), std::make_shared<s3::fixed_credentials>(right()));
    try {
      block_on(*loop, c.get("s3://b/k", 7, 10, "", slab_pool(64 * KiB)));
      FAIL("an answer");
    } catch (const http::error& e) {
      INFO(e.what());
      CHECK(e.object() == "s3://b/k");
      CHECK_THAT(e.reason(), Catch::Matchers::Contains("(" + store.url("") + ")") ||
                                 Catch::Matchers::Contains("sent no ETag"));
    }
  }
}
