// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/sign/signer.hpp>
#include <millrace/text/dates.hpp>

#include <time.h>

#include <cstdio>
#include <string>

#include "tests/support/catch.hpp"

namespace s3 = millrace::s3;

namespace {

std::string stamp(std::int64_t seconds) { return std::string(s3::amz_date(seconds).timestamp()); }

std::string by_the_c_library(std::int64_t seconds) {
  const time_t t = seconds;
  tm parts;
  gmtime_r(&t, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

}  // namespace

TEST_CASE("timestamps agree with the C library from 1970 to 9999", "[s3][date]") {
  CHECK(stamp(1369353600) == "20130524T000000Z");
  CHECK(s3::amz_date(1369353600).day() == "20130524");
  std::int64_t step = 86400 * 13 + 7919;
  for (std::int64_t t = 0; t <= millrace::text::last_second_of_9999; t += step) {
    if (stamp(t) != by_the_c_library(t)) CHECK(stamp(t) == by_the_c_library(t));
    const millrace::text::civil_time c = millrace::text::civil_from_unix(t);
    if (millrace::text::detail::checked_unix_from_civil(c) != t)
      CHECK(millrace::text::detail::checked_unix_from_civil(c) == t);
  }
  for (std::int64_t edge : {0LL, 951782399LL, 951782400LL, 951868800LL, 4107542399LL, 4107542400LL, 253402300799LL}) {
    CHECK(stamp(edge) == by_the_c_library(edge));
  }
  CHECK_THROWS_AS(s3::amz_date(-1), millrace::configuration_error);
  CHECK_THROWS_AS(s3::amz_date(253402300800), millrace::configuration_error);
}

TEST_CASE("the three HTTP dates are one moment", "[s3][date]") {
  CHECK(millrace::text::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT") == 784111777);
  CHECK(millrace::text::parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT", 1700000000) == 784111777);
  CHECK(millrace::text::parse_http_date("Sun Nov  6 08:49:37 1994") == 784111777);
  CHECK(millrace::text::parse_http_date("Wed Nov 16 08:49:37 1994") == 784111777 + 10 * 86400);
  CHECK(millrace::text::parse_http_date("Tuesday, 06-Nov-29 08:49:37 GMT", 1700000000) == 1888649377);
  CHECK(millrace::text::parse_http_date("Thu, 29 Feb 2024 23:59:60 GMT") == 1709251199);
}

TEST_CASE("what is no HTTP date is nothing", "[s3][date]") {
  for (const char* text :
       {"", ",", "x", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT ",
        "Sun, 06 Nox 1994 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37Z", "Sun Nov 6",
        "Sun Nov  6 08:49:37 1969", "Sun, 29 Feb 2023 00:00:00 GMT", "Sun, 06/Nov/1994 08:49:37 GMT", "Sun,"}) {
    INFO(text);
    CHECK_FALSE(millrace::text::parse_http_date(text).has_value());
  }
}

TEST_CASE("ISO dates of listings and credentials", "[s3][date]") {
  CHECK(millrace::text::parse_iso8601("2013-01-10T21:45:09.000Z") == 1357854309);
  CHECK(millrace::text::parse_iso8601("2013-01-10T21:45:09Z") == 1357854309);
  CHECK(millrace::text::parse_iso8601("2013-01-10T22:45:09+01:00") == 1357854309);
  CHECK(millrace::text::parse_iso8601("2013-01-10T16:15:09-0530") == 1357854309);
  // What dateutil makes of them, which botocore reads expirations with: each is the same moment. "UTC" stands in SSO
  // caches that older AWS CLIs have written.
  for (const char* text : {"2013-01-10T21:45:09UTC",
                           "2013-01-10T21:45:09utc",
                           "2013-01-10T21:45:09 UTC",
                           "2013-01-10T21:45:09GMT",
                           "2013-01-10T21:45:09.123456UTC",
                           "2013-01-10 21:45:09 UTC",
                           "2013-01-10T21:45:09+00:00",
                           "2013-01-10T21:45:09+0000",
                           "2013-01-10T21:45:09-00:00",
                           "2013-01-10T21:45:09+00",
                           "2013-01-10t21:45:09z",
                           "2013-01-10T21:45:09.1Z",
                           "2013-01-10T21:45:09.123456789+00:00",
                           "2013-01-10T21:45:09,5Z",
                           "2013-01-10T21:45:09 +00:00",
                           " 2013-01-10T21:45:09Z\n",
                           "2013-01-10T22:45:09+01",
                           "20130110T214509Z",
                           "20130110T214509UTC",
                           "20130110T214509.5+0000"}) {
    INFO(text);
    CHECK(millrace::text::parse_iso8601(text) == 1357854309);
  }
  // Without a zone botocore fails, too (it compares with a time that has one).
  for (const char* text :
       {"2013-01-10T21:45:09UTCx", "2013-01-10T21:45:09UT", "2013-01-10T21:45:09+", "20130110 214509Z",
        "2013-0110T21:45:09Z", "20130110T21:45:09Z", "2013-01-10T21:45:09+00:", "20130110T214509",
        "2013-01-10T21:45:09+001", "2013-01-10T21:45:09EST", "2013-01-10T21:45:09,Z"}) {
    INFO(text);
    CHECK_FALSE(millrace::text::parse_iso8601(text).has_value());
  }
  for (const char* text : {"", "2013", "2013-01-10", "2013-01-10T21:45:09", "2013-13-10T21:45:09Z", "2013-01-10T21:45Z",
                           "2013-01-10T21:45:09.Z", "2013-01-10T21:45:09+1", "2013-01-10T21:45:09+99:00",
                           "2013-01-10T21:45:09Zx", "1369353600", "-013-01-10T21:45:09Z"}) {
    INFO(text);
    CHECK_FALSE(millrace::text::parse_iso8601(text).has_value());
  }
}
