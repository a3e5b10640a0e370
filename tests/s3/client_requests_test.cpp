// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What goes over the wire for the client's operations, and what must never.

#include <millrace/s3/client.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/presign.hpp>

#include "tests/s3_server/raw_client.hpp"
#include "tests/s3/uploading.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using namespace millrace::test;
using s3_server::fault;

namespace {

std::optional<shard> first_of(const s3::client& c, std::string prefix) {
  const auto loop = make_event_loop();
  stream<shard> list = c.list(prefix);
  struct ask {
    static task<std::optional<shard>> run(stream<shard>& from) { co_return co_await from.next(); }
  };
  return block_on(*loop, ask::run(list));
}

/// Every operation of the client on the object; gives the messages of what they throw.
std::vector<std::string> try_everything(const s3::client& c, const std::string& object) {
  const auto loop = make_event_loop();
  std::vector<std::string> messages;
  const auto attempt = [&](auto make) {
    try {
      block_on(*loop, make());
    } catch (const error& e) {
      messages.push_back(e.what());
    }
  };
  attempt([&] { return c.get(object, 0, 100, "", slab_pool(64 * KiB)); });
  attempt([&] { return c.get(object, 0, 100, "\"etag\"", slab_pool(64 * KiB)); });
  attempt([&] { return c.head(object); });
  attempt([&] { return c.put(object, bytes::copy("body")); });
  attempt([&] { return c.put(object, pieces_of(pattern(2500), 700), small_parts); });
  attempt([&] { return c.create_bucket("s3://b"); });
  attempt([&] { return c.remove_bucket("s3://b"); });
  try {
    first_of(c, object);
  } catch (const error& e) {
    messages.push_back(e.what());
  }
  return messages;
}

/// The path and query of a URL.
std::string target_of(const std::string& url) { return url.substr(url.find('/', 8)); }

std::string presigned(const s3::client& c, std::string_view object, std::int64_t seconds, std::string method = "GET") {
  const auto loop = make_event_loop();
  return block_on(*loop, c.presign(object, seconds, std::move(method)));
}

}  // namespace

TEST_CASE("every request to a bucket whose readers pay says so, under its signature") {
  const scripted_server server(
      {{"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", scripted_answer::then::fin}});
  const std::string endpoint = server.url("");
  for (const bool pays : {true, false}) {
    s3::config_options o;
    o.endpoint = endpoint;
    o.requester_pays = pays;
    const s3::client c(s3::config(o), s3::credentials("key", "secret"));
    const std::size_t before = server.requests().size();
    try_everything(c, "s3://b/k");
    const std::vector<std::string> heads = server.requests();
    CHECK(heads.size() >= before + 7);
    for (std::size_t i = before; i < heads.size(); ++i) {
      CHECK((heads[i].find("\r\nx-amz-request-payer: requester\r\n") != std::string::npos) == pays);
      CHECK((heads[i].find(";x-amz-request-payer") != std::string::npos) == pays);
      // Without a body its hash is that of nothing: what every store takes, whatever the scheme.
      const bool bodiless = heads[i].rfind("GET ", 0) == 0 || heads[i].rfind("HEAD ", 0) == 0;
      if (bodiless) CHECK(heads[i].find("\r\nx-amz-content-sha256: e3b0c44298fc1c14") != std::string::npos);
    }
    const std::string url = presigned(c, "s3://b/k", 60);
    CHECK((url.find("x-amz-request-payer=requester&") != std::string::npos) == pays);
  }
}

// AWS's guide: "Using server-side encryption with customer-provided keys (SSE-C)".
TEST_CASE("objects are stored and read with the program's own key, which nothing shows") {
  const std::string raw = "0123456789abcdef0123456789ABCDEF";
  const std::string base64 = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlBQkNERUY=";
  for (const std::string& bad : {std::string(), raw.substr(1), raw + "x"}) {
    CHECK_THROWS_WITH(s3::customer_key(bad), "a customer-provided key (SSE-C) has 32 bytes");
  }
  const std::string name = "x-amz-server-side-encryption-customer-key: ";
  const scripted_server server([&](const std::string& head) {
    const std::size_t at = head.find(name);
    const std::string echo = "<html>debug: " + (at == std::string::npos ? "" : head.substr(at, 90)) + "</html>";
    return scripted_answer{"HTTP/1.1 403 Forbidden\r\nContent-Length: " + std::to_string(echo.size()) +
                               "\r\nConnection: close\r\n\r\n" + echo,
                           scripted_answer::then::fin};
  });
  const auto client_at = [&](const std::string& endpoint) {
    s3::config_options o;
    o.endpoint = endpoint;
    s3::config c(o);
    c.encryption_key = s3::customer_key(raw);
    return s3::client(std::move(c), s3::credentials("key", "secret"));
  };
  std::vector<std::string> messages = try_everything(client_at(server.url("")), "s3://b/k");
  std::size_t of_objects = 0;
  for (const std::string& head : server.requests()) {
    INFO(head.substr(0, head.find('\r')));
    const bool of_object = head.find(" /b/k") != std::string::npos;
    of_objects += of_object ? 1 : 0;
    for (const std::string& field : {std::string("algorithm: AES256"), "key: " + base64,
                                     std::string("key-MD5: V5euSAsQOO0sIBHETfEa4w==")}) {
      const std::string sent = "\r\nx-amz-server-side-encryption-customer-" + field + "\r\n";
      CHECK((head.find(sent) != std::string::npos) == of_object);
    }
    CHECK((head.find(";x-amz-server-side-encryption-customer-key;") != std::string::npos) == of_object);
  }
  CHECK(of_objects >= 5);
  // No TLS, and another machine.
  for (const char* far : {"http://store.example:9000", "http://1270.0.0.1", "http://127.evil.example"}) {
    const s3::client c = client_at(far);
    const auto loop = make_event_loop();
    CHECK_THROWS_WITH(block_on(*loop, c.get("s3://b/k", 0, 1, "", slab_pool(64 * KiB))),
                      Catch::Matchers::Contains("sent over TLS only"));
    for (std::string& m : try_everything(c, "s3://b/k")) messages.push_back(std::move(m));
    CHECK_THROWS_WITH(presigned(c, "s3://b/k", 60), Catch::Matchers::Contains("cannot carry a customer-provided key"));
  }
  CHECK(messages.size() > 20);
  for (const std::string& m : messages) {
    CHECK(m.find(raw) == std::string::npos);
    CHECK(m.find(base64) == std::string::npos);
  }
}

TEST_CASE("presigned URLs let a plain client do one thing for a while") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  const std::string key = "a b/+%?&#\xc3\xa4";
  server.put("b", key, std::string_view("content"));
  raw_client plain(server.port());
  const auto ask = [&](const std::string& method, const std::string& url, const std::string& body = "") {
    const std::string fields = "Host: 127.0.0.1:" + std::to_string(server.port()) +
                               "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    plain.send(method + " " + target_of(url) + " HTTP/1.1\r\n" + fields);
    return plain.read(method == "HEAD");
  };
  const std::string get = presigned(c, "s3://b/" + key, 60);
  CHECK(ask("GET", get).body == "content");
  CHECK(ask("GET", get).status == 200);
  CHECK(ask("PUT", get, "other").status == 403);
  CHECK(ask("GET", presigned(c, "s3://b/other", 60)).status == 404);
  CHECK(ask("PUT", presigned(c, "s3://b/new", 60, "PUT"), "written").status == 200);
  CHECK(content_of(server, "new") == "written");
  CHECK(ask("HEAD", presigned(c, "s3://b/new", 60, "HEAD")).status == 200);
  CHECK(ask("DELETE", presigned(c, "s3://b/new", 60, "DELETE")).status == 204);
  CHECK(content_of(server, "new") == "(no object)");

  const std::string minute = presigned(c, "s3://b/" + key, 60);
  server.clock().set_offset(30);
  CHECK(ask("GET", minute).status == 200);
  server.clock().set_offset(100);
  CHECK(ask("GET", minute).status == 403);

  for (const std::int64_t seconds : {std::int64_t(0), std::int64_t(-1), std::int64_t(604801)}) {
    CHECK_THROWS_AS(presigned(c, "s3://b/k", seconds), configuration_error);
  }
  CHECK_THROWS_AS(presigned(c, "s3://b", 60), configuration_error);
  CHECK_THROWS_AS(presigned(c, "s3://b/k", 60, "GET /x HTTP/1.1\r\nx: y\r\n"), configuration_error);
  CHECK_THROWS_AS(presigned(s3::client(c.configuration()), "s3://b/k", 60), configuration_error);
}

TEST_CASE("presigned URLs of temporary credentials carry their token, and use the clock and region that were learnt") {
  s3_server::options o = small_part_server();
  o.region = "eu-west-1";
  o.clock_offset = 7200;
  o.keys["temporary"] = s3_server::access_key("temporary-secret", "a/token+");
  s3_server::background server(o);
  server.put("b", "k", std::string_view("content"));
  s3::config_options at;
  const std::string endpoint = server.endpoint();
  at.endpoint = endpoint;
  at.region = "us-east-1";
  const s3::client c(s3::config(at), s3::credentials("temporary", "temporary-secret", "a/token+"));
  const auto loop = make_event_loop();
  block_on(*loop, c.get("s3://b/k", 0, 100, "", slab_pool(64 * KiB)));
  const std::string url = block_on(*loop, c.presign("s3://b/k", 60));
  CHECK(url.find("X-Amz-Security-Token=a%2Ftoken%2B") != std::string::npos);
  raw_client plain(server.port());
  plain.send("GET " + target_of(url) + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\n\r\n");
  CHECK(plain.read().body == "content");
}

TEST_CASE("whatever bytes a key or a prefix has reach the store as part of the name, and nothing else") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  const auto loop = make_event_loop();
  const std::string evil[] = {"a\r\nx-amz-acl: public-read",
                              "a HTTP/1.1\r\n\r\nDELETE /b/k HTTP/1.1\r\n\r\n",
                              std::string("a\0b", 3),
                              "\n",
                              "a?acl",
                              "a#b",
                              "../other/k",
                              "caf\xe9",          // Latin-1
                              "caf\xef\xbf\xbf",  // U+FFFF: UTF-8, but in no XML
                              "\xed\xa0\x80"};    // a surrogate
  for (const std::string& key : evil) {
    server.log().clear();
    block_on(*loop, c.put("s3://b/" + key, bytes::copy("body")));
    CHECK(block_on(*loop, c.put("s3://b/" + key, pieces_of(pattern(2500), 700), small_parts)).size == 2500);
    CHECK((content_of(server, key) == pattern(2500)));
    CHECK(server.objects().open_uploads() == 0);
    CHECK(block_on(*loop, c.head("s3://b/" + key)).size == 2500);
    CHECK(first_of(c, "s3://b/" + key)->url == "s3://b/" + key);
    for (const s3_server::logged_request& r : server.log().entries()) {
      CHECK((r.key == key || (r.key.empty() && r.query.find("prefix=" + key) != std::string::npos)));
      CHECK(r.status == 200);
    }
    server.objects().erase("b", key);
  }
  for (const std::string bucket : {"b\r\nx-evil: 1", "b\n", "b c", "b\x7f"}) {
    CHECK_THROWS_AS(c.head("s3://" + bucket + "/k"), configuration_error);
    CHECK_THROWS_AS(c.list("s3://" + bucket + "/k"), configuration_error);
    CHECK_THROWS_AS(c.put("s3://" + bucket + "/k", bytes::copy("x")), configuration_error);
    CHECK_THROWS_AS(c.create_bucket("s3://" + bucket), configuration_error);
  }
  CHECK_THROWS_AS(block_on(*loop, c.get("s3://b/k", 0, 10, "\"a\"\r\nx-evil: 1", slab_pool(64 * KiB))),
                  configuration_error);
  CHECK_THROWS_AS(block_on(*loop, c.put("s3://b/k", bytes::copy("x"), "text/plain\r\nx-evil: 1")), configuration_error);
}

TEST_CASE("a bucket is removed if it is empty") {
  s3_server::background server;
  const s3::client c = client_of(server);
  const auto loop = make_event_loop();
  block_on(*loop, c.create_bucket("s3://other"));
  block_on(*loop, c.put("s3://other/k", bytes::copy("x")));
  try {
    block_on(*loop, c.remove_bucket("s3://other"));
    FAIL("it had an object");
  } catch (const s3::error& e) {
    CHECK(e.code() == "BucketNotEmpty");
  }
  CHECK_THROWS_AS(c.remove_bucket("s3://other/k"), configuration_error);
  block_on(*loop, c.remove("s3://other/k"));
  block_on(*loop, c.remove_bucket("s3://other"));
  CHECK(!server.objects().has_bucket("other"));
  block_on(*loop, c.remove_bucket("s3://other"));
}

TEST_CASE("what is asked of an object is never asked of its bucket") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  for (const char* url : {"s3://b", "s3://b/", "s3://new-bucket"}) {
    CHECK_THROWS_AS(c.get(url, 0, 100, "", slab_pool(64 * KiB)), configuration_error);
    CHECK_THROWS_AS(c.head(url), configuration_error);
    CHECK_THROWS_AS(c.put(url, bytes::copy("x")), configuration_error);
    CHECK_THROWS_AS(c.put(url, pieces_of("x", 1)), configuration_error);
    CHECK_THROWS_AS(c.presign(url, 60), configuration_error);
  }
  CHECK(server.log().size() == 0);
}

TEST_CASE("a part of no bytes is refused before anything is sent: no range can ask for it") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  server.put("b", "k", std::string_view("content"));
  const auto loop = make_event_loop();
  for (const std::uint64_t offset : {0, 5}) {
    try {
      block_on(*loop, c.get("s3://b/k", offset, 0, "", slab_pool(64 * KiB)));
      FAIL("a part of no bytes was read");
    } catch (const configuration_error& e) {
      CHECK_THAT(e.what(), Catch::Matchers::Contains("s3://b/k") && Catch::Matchers::Contains("at least one byte"));
    }
  }
  CHECK(server.log().size() == 0);
}

TEST_CASE("a part that is larger than a slab is refused before anything is sent, whatever is known of the object") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  const std::string content = pattern(100 * KiB);
  server.put("b", "k", std::string_view(content));
  const auto loop = make_event_loop();
  const auto get = [&](std::size_t length, std::optional<std::uint64_t> size) {
    return block_on(*loop, c.get("s3://b/k", 0, length, "", slab_pool(64 * KiB), {.size = size})).data.size();
  };
  for (const std::optional<std::uint64_t> size : {std::optional<std::uint64_t>(), std::optional(content.size())}) {
    for (const std::size_t length : {64 * KiB + 1, 100 * KiB, 200 * KiB}) {
      try {
        get(length, size);
        FAIL("a part was read");
      } catch (const configuration_error& e) {
        CHECK_THAT(e.what(), Catch::Matchers::Contains("s3://b/k") &&
                                 Catch::Matchers::Contains("does not fit into a slab of 65536"));
      }
    }
  }
  CHECK(server.log().size() == 0);
  CHECK(get(64 * KiB, content.size()) == 64 * KiB);
}

TEST_CASE("a redirect to another host is never followed: no signature leaves for it") {
  s3_server::background elsewhere;
  for (const int status : {301, 302, 303, 307, 308}) {
    s3_server::background server(small_part_server());
    server.put("b", "k", std::string_view("content"));
    server.faults().add({}, fault::refuse(status, status == 301 ? "PermanentRedirect" : "TemporaryRedirect")
                                .with_field("Location", elsewhere.endpoint() + "/b/k")
                                .with_field("x-amz-bucket-region", "us-east-1.evil.example/x"));
    const s3::client c = client_of(server);
    try_everything(c, "s3://b/k");
    CHECK(server.faults().injected() >= 7);
    const auto loop = make_event_loop();
    try {
      block_on(*loop, c.head("s3://b/k"));
      FAIL("a redirect was taken for an answer");
    } catch (const s3::error& e) {
      CHECK(e.status() == status);
    }
  }
  CHECK(elsewhere.stats().connections == 0);
  CHECK(elsewhere.log().size() == 0);
}

TEST_CASE("no message shows a key, a token or a signature, whatever the store answers") {
  // What S3 sends with SignatureDoesNotMatch, and what a debugging proxy may make of a request.
  const std::string echo =
      "<Error><Code>SignatureDoesNotMatch</Code><Message>The request signature we calculated does not match the "
      "signature you provided.</Message><AWSAccessKeyId>test-key</AWSAccessKeyId><StringToSign>AWS4-HMAC-SHA256\n"
      "20261121T000000Z</StringToSign><SignatureProvided>0123456789abcdef</SignatureProvided><CanonicalRequest>GET\n"
      "/b/k\nx-amz-security-token:a/session+token</CanonicalRequest><RequestId>1</RequestId></Error>";
  const scripted_server echoing({{"HTTP/1.1 403 Forbidden\r\nContent-Length: " + std::to_string(echo.size()) +
                                      "\r\nConnection: close\r\n\r\n" + echo,
                                  scripted_answer::then::fin}});
  s3_server::background server(small_part_server());
  client_of(server);
  std::vector<std::string> messages;
  const auto collect = [&](const std::string& endpoint) {
    s3::config_options o;
    o.endpoint = endpoint;
    o.region = "us-east-1";
    o.retry.base = std::chrono::microseconds(1);
    const s3::client c(s3::config(o), s3::credentials("test-key", "a-wrong-secret", "a/session+token"));
    for (std::string& m : try_everything(c, "s3://b/k")) messages.push_back(std::move(m));
    const auto loop = make_event_loop();
    const auto transport = std::make_shared<const http::transport_options>();
    const std::string url = block_on(*loop, c.presign("s3://b/k", 60));
    try {
      const http::response r = block_on(*loop, http::send(http::request(url), transport, 1));
    } catch (const error& e) {
      messages.push_back(e.what());
    }
  };
  collect(echoing.url(""));
  collect("http://127.0.0.1:1");
  const fault faults[] = {fault(),
                          fault::refuse(500, "InternalError"),
                          fault::refuse(400, "ExpiredToken"),
                          fault::refuse(403, "RequestTimeTooSkewed"),
                          fault::refuse(301, "PermanentRedirect"),
                          fault::garbage_status(),
                          fault::reset_before_head(),
                          fault::close_in_head(20),
                          fault::close_in_body(3),
                          fault::nul_in_head(),
                          fault::page(200),
                          fault::error_in_success("InternalError")};
  for (const fault& f : faults) {
    server.faults().clear();
    server.faults().add({}, f);
    collect(server.endpoint());
  }
  CHECK(messages.size() > 100);
  for (const std::string& m : messages) {
    INFO(m.size() << " bytes about " << m.substr(0, m.find(": ")));
    for (const char* secret : {"a-wrong-secret", "a/session+token", "a%2Fsession%2Btoken",
                               "Signature=", "Credential=", "AWS4-HMAC", "X-Amz-", "test-key", "0123456789abcdef"}) {
      CHECK(m.find(secret) == std::string::npos);
    }
  }
}
