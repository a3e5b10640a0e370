// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/detail/requests.hpp>
#include <millrace/testing/s3_server/message.hpp>

#include <string>

#include "tests/s3_server/parsed.hpp"
#include "tests/support/catch.hpp"

namespace {

namespace s3_server = millrace::s3_server;

/// "first+length", "all", or the status with which the range is refused.
std::string selected(const std::string& range, std::uint64_t size) {
  try {
    const auto part = s3_server::detail::parse_range(&range, size);
    return part ? std::to_string(part->first) + '+' + std::to_string(part->length) : "all";
  } catch (const s3_server::refusal& why) {
    return std::to_string(why.status);
  }
}

TEST_CASE("ranges") {
  CHECK(selected("bytes=0-0", 10) == "0+1");
  CHECK(selected("bytes=2-4", 10) == "2+3");
  CHECK(selected("bytes=2-", 10) == "2+8");
  CHECK(selected("bytes=2-99", 10) == "2+8");
  CHECK(selected("bytes=9-18446744073709551615", 10) == "9+1");
  CHECK(selected("bytes=-3", 10) == "7+3");
  CHECK(selected("bytes=-30", 10) == "0+10");
  CHECK(selected("bytes=10-", 10) == "416");
  CHECK(selected("bytes=10-12", 10) == "416");
  CHECK(selected("bytes=-0", 10) == "416");
  CHECK(selected("bytes=0-", 0) == "416");
  CHECK(selected("bytes=0-5", 0) == "416");
  CHECK(selected("bytes=-5", 0) == "416");
  for (const char* ignored : {"bytes=4-2", "bytes=", "bytes=-", "bytes=a-b", "bytes=1-2,4-5", "items=0-1", "bytes=1",
                              "bytes=1-x", "bytes=99999999999999999999-"}) {
    INFO(ignored);
    CHECK(selected(ignored, 10) == "all");
  }
  CHECK(!s3_server::detail::parse_range(nullptr, 10));
}

TEST_CASE("If-Match and If-None-Match") {
  s3_server::object o;
  o.etag = "\"abc\"";
  const auto judge = [&](const std::string& fields) -> std::string {
    try {
      return s3_server::detail::not_modified(millrace::test::parsed("GET / HTTP/1.1\r\nHost: x\r\n" + fields), o)
                 ? "304"
                 : "200";
    } catch (const s3_server::refusal& why) {
      return std::to_string(why.status);
    }
  };
  CHECK(judge("") == "200");
  CHECK(judge("If-Match: \"abc\"\r\n") == "200");
  CHECK(judge("If-Match: abc\r\n") == "200");
  CHECK(judge("If-Match: \"x\", \"abc\"\r\n") == "200");
  CHECK(judge("If-Match: *\r\n") == "200");
  CHECK(judge("If-Match: \"ab\"\r\n") == "412");
  CHECK(judge("If-None-Match: \"abc\"\r\n") == "304");
  CHECK(judge("If-None-Match: \"x\"\r\n") == "200");
  CHECK(judge("If-Match: \"x\"\r\nIf-None-Match: \"abc\"\r\n") == "412");
}

}  // namespace
