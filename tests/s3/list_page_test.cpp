// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/error.hpp>
#include <millrace/s3/wire/documents.hpp>
#include <millrace/text/dates.hpp>

#include <string>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"

namespace {

namespace s3 = millrace::s3;
using Catch::Matchers::Contains;

std::string listing(const std::string& inside, const char* truncated = "false") {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
         "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><IsTruncated>" +
         std::string(truncated) + "</IsTruncated>" + inside + "</ListBucketResult>";
}

std::string object(const std::string& key, const std::string& size = "1") {
  return "<Contents><Key>" + key + "</Key><Size>" + size + "</Size></Contents>";
}

s3::list_page parse(const std::string& xml) { return s3::list_page::parse(xml, "bucket"); }

std::string problem(const std::string& xml) {
  try {
    parse(xml);
  } catch (const s3::error& e) {
    CHECK(e.object() == "s3://bucket/");
    return e.what();
  }
  FAIL("taken: " << xml.substr(0, 200));
  return std::string();
}

}  // namespace

TEST_CASE("a listing of botocore's collection is read alike", "[s3][xml]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  const std::string folder = data + "/s3xml/responses/";
  const auto expected = millrace::test::read_json(folder + "s3-list-objects.json");
  const s3::list_page page = parse(millrace::test::read_file(folder + "s3-list-objects.xml"));
  CHECK(page.truncated == expected.at("IsTruncated").get<bool>());
  REQUIRE(page.objects.size() == expected.at("Contents").size());
  for (std::size_t i = 0; i < page.objects.size(); ++i) {
    const auto& e = expected["Contents"][i];
    CHECK(page.objects[i].key == e.at("Key").get<std::string>());
    CHECK(page.objects[i].etag == e.at("ETag").get<std::string>());
    CHECK(page.objects[i].size == e.at("Size").get<std::uint64_t>());
    CHECK(page.objects[i].last_modified == millrace::text::parse_iso8601(e.at("LastModified").get<std::string>()));
  }
  for (const std::string& name : millrace::test::names_in(folder)) {
    if (name == "s3-list-objects.xml" || name.find(".xml") == std::string::npos) continue;
    INFO(name);
    CHECK_THAT(problem(millrace::test::read_file(folder + name)), Contains("not a listing"));
  }
}

TEST_CASE("a page carries objects, prefixes and the token of the next one", "[s3][xml]") {
  const s3::list_page page =
      parse(listing(object("a&amp;b&lt;&gt;&quot;&apos;&#65;&#x42;", "18446744073") +
                        "<CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes><Prefix>not this</Prefix>"
                        "<NextContinuationToken>1%2F+=</NextContinuationToken>",
                    "true"));
  REQUIRE(page.objects.size() == 1);
  CHECK(page.objects[0].key == "a&b<>\"'AB");
  CHECK(page.objects[0].size == 18446744073u);
  CHECK(page.objects[0].etag.empty());
  CHECK(page.objects[0].last_modified == 0);
  CHECK(page.common_prefixes == std::vector<std::string>{"x/"});
  CHECK(page.truncated);
  CHECK(page.next_continuation_token == "1%2F+=");
  CHECK(parse(listing("")).objects.empty());
}

TEST_CASE("names are decoded exactly when the listing says that they are encoded", "[s3][xml]") {
  const std::string names = object("a+b%2Bc%2Fd/%01%ff%25") + "<CommonPrefixes><Prefix>p+%2f</Prefix></CommonPrefixes>";
  CHECK(parse(listing(names)).objects[0].key == "a+b%2Bc%2Fd/%01%ff%25");
  for (const bool first : {true, false}) {  // the element may come before the names or after them
    const std::string says = "<EncodingType>url</EncodingType>";
    const s3::list_page page = parse(listing(first ? says + names : names + says));
    CHECK(page.objects[0].key == "a b+c/d/\x01\xff%");
    CHECK(page.common_prefixes[0] == "p /");
  }
  CHECK_THAT(problem(listing(object("50%") + "<EncodingType>url</EncodingType>")), Contains("percent-encoded"));
  CHECK_THAT(problem(listing("<EncodingType>rot13</EncodingType>")), Contains("encoding type"));
}

TEST_CASE("an error document with status 200 is an error", "[s3][xml]") {
  try {
    parse(
        "<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message>"
        "<RequestId>R1</RequestId></Error>");
    FAIL("taken for a listing");
  } catch (const s3::error& e) {
    CHECK(e.status() == 200);
    CHECK(e.code() == "InternalError");
    CHECK(e.request_id() == "R1");
  }
}

TEST_CASE("a listing that is not whole is never taken for a short one", "[s3][xml]") {
  const std::string good = listing(object("a") + object("b"));
  parse(good);
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    CHECK_THROWS_AS(parse(good.substr(0, cut)), s3::error);
  }
  CHECK_THAT(problem(good.substr(0, 200)), Contains("not intact XML") && Contains("byte"));
  CHECK_THAT(problem(good + good), Contains("not intact XML"));
  CHECK_THAT(problem(listing("", "true")), Contains("has no continuation token"));
  CHECK_THAT(problem(listing("", "maybe")), Contains("whether it is complete"));
  CHECK_THAT(problem("<ListBucketResult/>"), Contains("whether it is complete"));
  CHECK_THAT(problem("<html><body>busy</body></html>"), Contains("not a listing"));
  CHECK_THAT(problem("<ListBucketResultX><IsTruncated>false</IsTruncated></ListBucketResultX>"),
             Contains("not a listing"));
  CHECK_THAT(problem(listing("<Contents><Size>1</Size></Contents>")), Contains("without a key"));
  for (const char* size : {"", "-1", "1e3", "0x10", "99999999999999999999", "1 1", "+1"}) {
    INFO(size);
    CHECK_THAT(problem(listing(object("k", size))), Contains("valid size") && Contains("k"));
  }
}

TEST_CASE("hostile XML is refused before it costs anything", "[s3][xml]") {
  std::string laughs = "<?xml version=\"1.0\"?><!DOCTYPE lolz [<!ENTITY l0 \"lol\">";
  for (int i = 1; i < 10; ++i) {
    laughs += "<!ENTITY l" + std::to_string(i) + " \"";
    for (int k = 0; k < 10; ++k) laughs += "&l" + std::to_string(i - 1) + ";";
    laughs += "\">";
  }
  laughs += "]>" + listing(object("&l9;")).substr(39);
  CHECK_THAT(problem(laughs), Contains("document type"));
  CHECK_THAT(problem("<!DOCTYPE ListBucketResult SYSTEM \"file:///etc/passwd\"><ListBucketResult/>"),
             Contains("document type"));
  CHECK_THAT(problem(listing(object("&unknown;"))), Contains("not intact XML"));

  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  CHECK_THAT(problem(deep), Contains("nested too deeply"));
  CHECK_THAT(problem(listing(object(std::string(70000, 'k')))), Contains("too long"));
  CHECK_THAT(problem(listing(object("k")) + std::string(17 << 20, ' ')), Contains("longer than"));
  CHECK_THAT(problem(listing(object(std::string("a\0b", 3)))), Contains("not intact XML"));
  CHECK_THAT(problem(listing(object("a\x01"))), Contains("not intact XML"));
  CHECK_THAT(problem(listing(object("\xc3("))), Contains("not intact XML"));
  CHECK_THAT(problem("\xff\xfe<\0a\0"), Contains("not intact XML"));
  // Only text in a leaf counts against the limit of an element.
  CHECK(parse(listing(object("a") + std::string(100000, ' ') + object("b"))).objects.size() == 2);
  // Prefixed names are the same names; comments and processing instructions are no text.
  const s3::list_page page = parse(
      "<s:ListBucketResult xmlns:s='x'><s:IsTruncated>fal<!-- true -->se</s:IsTruncated>"
      "<s:Contents><s:Key><![CDATA[a<b]]><?pi x?></s:Key><s:Size>0</s:Size></s:Contents></s:ListBucketResult>");
  CHECK(page.objects.at(0).key == "a<b");
}
