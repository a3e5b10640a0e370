// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/retry/retry.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/wire/detail/xml.hpp>
#include <millrace/s3/wire/documents.hpp>

#include <string>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"

namespace s3 = millrace::s3;
using millrace::retry_class;

TEST_CASE("an S3 error says what S3 said, about which object", "[s3][error]") {
  millrace::where at;
  at.object = "s3://bucket/key";
  at.offset = 8388608;
  const s3::error e(403, "AccessDenied", "Access Denied", "9C7D5181867045BB", at);
  CHECK(std::string(e.what()) ==
        "s3://bucket/key at byte 8388608: 403 AccessDenied: Access Denied (request id 9C7D5181867045BB)");
  CHECK(e.status() == 403);
  CHECK(e.code() == "AccessDenied");
  CHECK(e.request_id() == "9C7D5181867045BB");
  CHECK(std::string(s3::error(404, "", "", "").what()) == "404");
  CHECK(std::string(s3::error(200, "", "the listing repeats itself", "").what()) == "the listing repeats itself");
  CHECK(std::string(s3::error(200, "InternalError", "again", "").what()) == "200 InternalError: again");
  CHECK(std::string(s3::error(0, "", "connection reset", "").what()) == "connection reset");
  CHECK(std::string(s3::error(500, "X", "a\nb", "").what()) == "500 X: a\\x0ab");
  CHECK_THROWS_AS(throw e, millrace::error);
}

TEST_CASE("error documents of botocore's collection are read alike", "[s3][xml]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  const std::string folder = data + "/s3xml/errors/";
  int documents = 0;
  for (const std::string& name : millrace::test::names_in(folder)) {
    if (name.find(".xml") == std::string::npos) continue;
    INFO(name);
    const auto expected = millrace::test::read_json(folder + name.substr(0, name.size() - 4) + ".json").at("Error");
    const auto document = s3::error_document::parse(millrace::test::read_file(folder + name));
    REQUIRE(document.has_value());
    CHECK(document->code == expected.at("Code").get<std::string>());
    CHECK(document->message == expected.at("Message").get<std::string>());
    CHECK(document->request_id.size() == 16);
    ++documents;
  }
  CHECK(documents == 2);
}

TEST_CASE("keys in error documents may hold what XML cannot", "[s3][xml]") {
  using s3::detail::xml_legal;
  CHECK(xml_legal("a&#x1;b&#0;&#x00;&#31;&#xC;") == "a?b????");
  CHECK(xml_legal("&#x9;&#10;&#xd;&#x20;&#65;&amp;&lt;&#x110000;&#;&#x;&#xg;&#1&#") ==
        "&#x9;&#10;&#xd;&#x20;&#65;&amp;&lt;&#x110000;&#;&#x;&#xg;&#1&#");
  CHECK(xml_legal(std::string_view("\0a\x01\t\r\n\x1f", 7)) == "?a?\t\r\n?");
  const auto d = s3::error_document::parse("<Error><Key>&#x0;\x01</Key><Code>NoSuchKey</Code></Error>");
  REQUIRE(d.has_value());
  CHECK(d->code == "NoSuchKey");
}

TEST_CASE("keys in error documents may hold bytes that are no text", "[s3][xml]") {
  const auto legal = [](const std::string& text) { return s3::detail::xml_legal("[" + text + "]"); };
  // The first and the last character of each length, and those beside the gap of the surrogates.
  for (const char* text : {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbd",
                           "\xf0\x90\x80\x80", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "caf\xc3\xa9\xe2\x82\xac"}) {
    CHECK(legal(text) == "[" + std::string(text) + "]");
  }
  CHECK(legal("caf\xe9") == "[caf?]");                              // Latin-1
  CHECK(legal("\x80\xbf\xc3\xa9") == "[??\xc3\xa9]");               // no first byte
  CHECK(legal("\xc3") == "[?]");                                    // cut short
  CHECK(legal("\xe2\x82\xc3\xa9") == "[??\xc3\xa9]");               // cut short by the next character
  CHECK(legal("\xf0\x9f\x98") == "[???]");                          // also at its end
  CHECK(legal("\xc0\x80 \xc1\xbf \xe0\x9f\xbf") == "[?? ?? ???]");  // longer than need be
  CHECK(legal("\xf0\x8f\xbf\xbf") == "[????]");
  CHECK(legal("\xed\xa0\x80 \xed\xbf\xbf") == "[??? ???]");                   // surrogates
  CHECK(legal("\xf4\x90\x80\x80 \xf5\x80\x80\x80 \xff") == "[???? ???? ?]");  // after the last character
  CHECK(legal("\xef\xbf\xbe \xef\xbf\xbf") == "[??? ???]");                   // U+FFFE and U+FFFF are UTF-8, but no XML
  CHECK(legal("&#xfffe;&#xFFFF;&#65534;&#65535;") == "[????]");
  CHECK(legal("&#xfffd;&#x10000;&#xd7ff;&#xe000;") == "[&#xfffd;&#x10000;&#xd7ff;&#xe000;]");
  CHECK(legal("&#xd800;&#xdfff;") == "[??]");

  const auto d =
      s3::error_document::parse("<Error><Key>caf\xe9 \xef\xbf\xbf &#xffff;</Key><Code>NoSuchKey</Code></Error>");
  REQUIRE(d.has_value());
  CHECK(d->code == "NoSuchKey");
}

TEST_CASE("error documents carry what a redirect needs", "[s3][xml]") {
  const auto d = s3::error_document::parse(
      "<?xml version='1.0'?><Error><Code>AuthorizationHeaderMalformed</Code><Message>the region is wrong</Message>"
      "<Region>eu-west-1</Region><Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint><Resource>/b/k</Resource>"
      "<StringToSign>secret</StringToSign><RequestId>R</RequestId></Error>");
  REQUIRE(d.has_value());
  CHECK(d->code == "AuthorizationHeaderMalformed");
  CHECK(d->region == "eu-west-1");
  CHECK(d->endpoint == "b.s3.eu-west-1.amazonaws.com");
  CHECK(d->resource == "/b/k");
  CHECK(d->request_id == "R");

  const auto sts = s3::error_document::parse(
      "<ErrorResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><Error><Type>Sender</Type>"
      "<Code>InvalidClientTokenId</Code><Message>m</Message></Error><RequestId>R2</RequestId></ErrorResponse>");
  REQUIRE(sts.has_value());
  CHECK(sts->code == "InvalidClientTokenId");
  CHECK(sts->request_id == "R2");
}

TEST_CASE("a body that is no error document is nothing, whatever it holds", "[s3][xml]") {
  for (const std::string& body :
       {std::string(), std::string("busy"), std::string("<html><Error><Code>x</Code></Error></html>"),
        std::string("<Error><Message>no code</Message></Error>"), std::string("<Error><Code>x</Code>"),
        std::string("<Error><Code>x</Code></Error><"), std::string("<!DOCTYPE Error><Error><Code>x</Code></Error>"),
        std::string("<Error><A><Code>x</Code></A></Error>"), std::string("\0\0\0", 3), std::string(2 << 20, ' ')}) {
    INFO(body.substr(0, 80));
    CHECK_FALSE(s3::error_document::parse(body).has_value());
  }
  const auto d =
      s3::error_document::parse("<Error><Code>x</Code><Message>" + std::string(5000, 'm') + "</Message></Error>");
  REQUIRE(d.has_value());
  CHECK(d->message.size() == 1024);
}

TEST_CASE("failures are distinguished", "[s3][retry]") {
  CHECK(millrace::classify(0, "") == millrace::retry_class::transient);
  for (int status : {408, 500, 502, 503, 504})
    CHECK(millrace::classify(status, "") == millrace::retry_class::transient);
  CHECK(millrace::classify(429, "") == millrace::retry_class::throttling);
  CHECK(millrace::classify(503, "SlowDown") == millrace::retry_class::throttling);
  CHECK(millrace::classify(503, "ServiceUnavailable") == millrace::retry_class::transient);
  CHECK(millrace::classify(400, "RequestTimeout") == millrace::retry_class::transient);
  CHECK(millrace::classify(400, "ThrottlingException") == millrace::retry_class::throttling);
  CHECK(millrace::classify(403, "RequestTimeTooSkewed") == millrace::retry_class::skew);
  CHECK(millrace::classify(400, "AuthorizationHeaderMalformed") == millrace::retry_class::region);
  CHECK(millrace::classify(301, "") == millrace::retry_class::region);
  CHECK(millrace::classify(307, "TemporaryRedirect") == millrace::retry_class::region);
  CHECK(millrace::classify(400, "ExpiredToken") == millrace::retry_class::expired);
  CHECK(millrace::classify(400, "IDPCommunicationError") == millrace::retry_class::transient);
  for (int status : {400, 401, 403, 404, 405, 409, 411, 412, 416, 501, 505}) {
    CHECK(millrace::classify(status, "") == millrace::retry_class::permanent);
    CHECK(millrace::classify(status, "SomethingNew") == millrace::retry_class::permanent);
  }
  CHECK(millrace::classify(403, "AccessDenied") == millrace::retry_class::permanent);
  CHECK(millrace::classify(500, "SomethingNew") == millrace::retry_class::transient);
  // An error document in a 200, a listing cut short.
  CHECK(millrace::classify(200, "InternalError") == millrace::retry_class::transient);
  CHECK(millrace::classify(200, "SlowDown") == millrace::retry_class::throttling);
  CHECK(millrace::classify(200, "SomethingNew") == millrace::retry_class::transient);
  CHECK(millrace::classify(200, "") == millrace::retry_class::transient);
}
