// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/http/message.hpp>

#include "tests/support/catch.hpp"

using millrace::http::content_range;

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
  for (const char* bad :
       {"", "bytes", "bytes 0-9", "bytes 9-0/10", "bytes 0-10/10", "bytes 0-9/10 ", "bytes -9/10", "bytes 0-/10",
        "items 0-9/10", "bytes */*", "bytes 0-99999999999999999999/100000000000000000000", "bytes 0-9/x",
        "bytes a-9/10", "bytes=0-9/10"}) {
    INFO(bad);
    CHECK_FALSE(content_range::parse(bad));
  }
}
