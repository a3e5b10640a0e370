// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/detail/body_check.hpp>
#include <millrace/testing/s3_server/message.hpp>

#include <string>

#include "tests/s3_server/parsed.hpp"
#include "tests/support/catch.hpp"

namespace {

namespace s3_server = millrace::s3_server;
using millrace::test::parsed;
using s3_server::request;
using s3_server::detail::check_body;
using s3_server::detail::parse_head;

const std::string unsigned_payload = "UNSIGNED-PAYLOAD";
const std::string in_chunks = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

s3_server::request with_body(const std::string& body, const std::string& fields = std::string()) {
  s3_server::request r = millrace::test::parsed("PUT /b/k HTTP/1.1\r\nHost: x\r\n" + fields);
  r.body = millrace::bytes::copy(body);
  return r;
}

/// The code with which the body is refused; what it holds where it passes.
std::string judged(s3_server::request r, const std::string& payload) {
  try {
    check_body(r, payload);
    return "ok: " + std::string(r.body.view());
  } catch (const s3_server::refusal& why) {
    return why.code;
  }
}

TEST_CASE("the signed hash must be that of the body") {
  const std::string hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
  CHECK(judged(with_body("hello"), hello) == "ok: hello");
  CHECK(judged(with_body("hellp"), hello) == "XAmzContentSHA256Mismatch");
  CHECK(judged(with_body(""), hello) == "XAmzContentSHA256Mismatch");
  CHECK(judged(with_body("hellp"), unsigned_payload) == "ok: hellp");
}

TEST_CASE("checksums of every algorithm, in fields and in trailing fields") {
  // Of "123456789": the check values of the catalogue of CRC algorithms, and the published digests.
  for (const std::string sound :
       {"crc32: y/Q5Jg==", "crc32c: 4waSgw==", "crc64nvme: rosUhgp5mIg=", "sha1: 98O8HYCOBHMq32eZZczDTKeuNEE=",
        "sha256: FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="}) {
    INFO(sound);
    const std::string field = "x-amz-checksum-" + sound + "\r\n";
    CHECK(judged(with_body("123456789", field), unsigned_payload) == "ok: 123456789");
    CHECK(judged(with_body("123456780", field), unsigned_payload) == "BadDigest");
    const std::string length = "x-amz-decoded-content-length: 9\r\n";
    CHECK(judged(with_body("9\r\n123456789\r\n0\r\n" + field + "\r\n", length), in_chunks) == "ok: 123456789");
    CHECK(judged(with_body("9\r\n123456780\r\n0\r\n" + field + "\r\n", length), in_chunks) == "BadDigest");
  }
  s3_server::request r = with_body("123456789", "x-amz-checksum-crc32: y/Q5Jg==\r\nx-amz-checksum-mode: ENABLED\r\n");
  CHECK(check_body(r, unsigned_payload) == std::vector<s3_server::request::pair>{{"x-amz-checksum-crc32", "y/Q5Jg=="}});
}

TEST_CASE("the chunks of aws-chunked") {
  const auto judge = [](const std::string& body, const std::string& length = "5") {
    return judged(with_body(body, "x-amz-decoded-content-length: " + length + "\r\n"), in_chunks);
  };
  CHECK(judge("5\r\nhello\r\n0\r\n\r\n") == "ok: hello");
  CHECK(judge("2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n") == "ok: hello");
  CHECK(judge("0\r\n\r\n", "0") == "ok: ");
  for (const std::string broken : {"", "5", "5\r\n", "5\r\nhello", "5\r\nhello\r\n", "5\r\nhello\r\n0",
                                   "5\r\nhello\r\n0\r\n", "6\r\nhello\r\n0\r\n\r\n", "4\r\nhello\r\n0\r\n\r\n",
                                   "x\r\nhello\r\n0\r\n\r\n", "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
                                   "fffffffffffffff\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\nno colon\r\n\r\n"}) {
    INFO(broken);
    CHECK(judge(broken) == "IncompleteBody");
  }
  CHECK(judge("5\r\nhello\r\n0\r\n\r\n", "6") == "IncompleteBody");
  CHECK(judged(with_body("5\r\nhello\r\n0\r\n\r\n"), in_chunks) == "IncompleteBody");
}

bool refused(const std::string& head) {
  request r;
  return parse_head(head, r) != nullptr;
}

TEST_CASE("a request head is split and decoded; the target stays raw beside it") {
  const request r =
      parsed("GET /b/a%20b+c?list-type=2&prefix=a%2Fb&uploads HTTP/1.1\r\nHost: h:80\r\nX-Two:  a  b\t\r\nx-two:c\r\n");
  CHECK(r.method == "GET");
  CHECK(r.raw_path() == "/b/a%20b+c");
  CHECK(r.raw_query() == "list-type=2&prefix=a%2Fb&uploads");
  CHECK(*r.parameter_value("prefix") == "a/b");
  CHECK(*r.parameter_value("uploads") == "");
  CHECK(!r.has("x"));
  CHECK(*r.field("x-two") == "a  b");
  CHECK(r.count("x-two") == 2);
  CHECK(r.minor_version == 1);
  CHECK(parsed("GET / HTTP/1.0\r\n").minor_version == 0);
  CHECK(parsed("GET http://h:80/b/a?x HTTP/1.1\r\nHost: h:80\r\n").target == "/b/a?x");
}

TEST_CASE("what is not strictly HTTP/1 is refused") {
  const std::string host = "Host: h\r\n";
  CHECK(!refused("GET / HTTP/1.1\r\n" + host));
  for (const char* line : {"GET /", "GET  / HTTP/1.1", "GET / HTTP/2.0", "GET x HTTP/1.1", "G\x01T / HTTP/1.1",
                           "GET /a b HTTP/1.1", "GET /\xc3\xa9 HTTP/1.1", "GET /#a HTTP/1.1", "GET http://x HTTP/1.1",
                           "GET /%zz HTTP/1.1", "GET /%4 HTTP/1.1", "GET /?a=%g1 HTTP/1.1", ""}) {
    INFO(line);
    CHECK(refused(std::string(line) + "\r\n" + host));
  }
  CHECK(refused("GET / HTTP/1.1\r\n"));
  CHECK(refused("GET / HTTP/1.1\r\n" + host + host));
  for (const std::string field : {"No-Colon\r\n", "Blank : x\r\n", ": x\r\n", " folded\r\n", "A: b\n", "A: \x01\r\n",
                                  "A: b\x7f\r\n", "A\x80: b\r\n"}) {
    INFO(field);
    CHECK(refused("GET / HTTP/1.1\r\n" + host + field));
  }
  CHECK(refused("GET / HTTP/1.1\r\n" + host + std::string("A: b\0c\r\n", 8)));
}

}  // namespace
