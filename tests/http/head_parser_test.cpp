// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What is counted here as well as by libcurl: that a version of it which counts otherwise lets nothing short through.

#include <millrace/http/message.hpp>

#include <cstdint>
#include <string>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

/// Whether a body of so many bytes is valid after such a head.
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
