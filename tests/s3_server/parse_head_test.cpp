// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/detail/body_check.hpp>

#include <string>

#include "tests/s3_server/parsed.hpp"
#include "tests/support/catch.hpp"

namespace {

using millrace::s3_server::request;
using millrace::s3_server::detail::parse_head;
using millrace::test::parsed;

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
}

TEST_CASE("what is not strictly HTTP/1 is refused") {
  const std::string host = "Host: h\r\n";
  CHECK(!refused("GET / HTTP/1.1\r\n" + host));
  for (const char* line : {"GET /", "GET  / HTTP/1.1", "GET / HTTP/2.0", "GET x HTTP/1.1", "G\x01T / HTTP/1.1",
                           "GET /a b HTTP/1.1", "GET /\xc3\xa9 HTTP/1.1", "GET /#a HTTP/1.1", "GET http://x/ HTTP/1.1",
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
