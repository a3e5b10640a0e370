// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/http/message.hpp>

#include <cstdint>
#include <string>

#include "tests/support/catch.hpp"

using namespace millrace;
using http::content_range;

TEST_CASE("Content-Range is read strictly") {
  const auto r = content_range::parse("bytes 0-9/100");
  REQUIRE(r);
  CHECK(r->first == 0);
  CHECK(r->last == 9);
  CHECK(r->total == 100u);
  CHECK(r->satisfied);
  const auto unknown = content_range::parse("bytes 5-5/*");
  REQUIRE(unknown);
  CHECK_FALSE(unknown->total);
  const auto unsatisfied = content_range::parse("bytes */47");
  REQUIRE(unsatisfied);
  CHECK_FALSE(unsatisfied->satisfied);
  CHECK(unsatisfied->total == 47u);
  CHECK(content_range::parse("BYTES 0-9/100"));  // units are case-insensitive (RFC 9110, 14.1)
  CHECK(content_range::parse("Bytes */47"));
  for (const char* bad :
       {"", "bytes", "bytes 0-9", "bytes 9-0/10", "bytes 0-10/10", "bytes 0-9/10 ", "bytes -9/10", "bytes 0-/10",
        "items 0-9/10", "bytes */*", "bytes 0-99999999999999999999/100000000000000000000", "bytes 0-9/x",
        "bytes a-9/10", "bytes=0-9/10"}) {
    INFO(bad);
    CHECK_FALSE(content_range::parse(bad));
  }
}

namespace {

/// Whether a body of so many bytes is valid after such a head. It is counted here as well as by libcurl, so that a
/// version of it which counts otherwise lets nothing short through.
bool whole(const std::string& method, const std::string& field, std::uint64_t received) {
  const http::request asked(method, "http://h/object");
  http::detail::head_parser parser(asked);
  parser.line("HTTP/1.1 200 OK\r\n");
  parser.line(field + "\r\n");
  REQUIRE(parser.line("\r\n"));
  try {
    parser.check_body(received);
  } catch (const http::error& e) {
    CHECK(e.kind() == http::failure::broken);
    CHECK(e.object() == "http://h/object");
    CHECK_THAT(e.reason(), Catch::Matchers::Contains(std::to_string(received) + " bytes instead of 10"));
    return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a body has as many bytes as its Content-Length says") {
  CHECK(whole("GET", "Content-Length: 10", 10));
  for (const std::uint64_t received : {0, 9, 11}) CHECK_FALSE(whole("GET", "Content-Length: 10", received));
  CHECK(whole("GET", "Transfer-Encoding: chunked", 9));
  CHECK(whole("HEAD", "Content-Length: 10", 0));
}
