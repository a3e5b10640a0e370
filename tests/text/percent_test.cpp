// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/text/text.hpp>

#include <string>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"

namespace text = millrace::text;

TEST_CASE("paths keep slashes, queries do not", "[s3][uri]") {
  CHECK(text::encode_path("a b/+c/%/~") == "a%20b/%2Bc/%25/~");
  CHECK(text::encode_query("a b/+c/%/~") == "a%20b%2F%2Bc%2F%25%2F~");
  CHECK(text::encode_path("").empty());
  CHECK(text::encode_path(std::string_view("\0\x7f\xff", 3)) == "%00%7F%FF");
  std::string query;
  text::append_query_parameter(query, "list-type", "2");
  text::append_query_parameter(query, "prefix", "a/b c");
  text::append_query_parameter(query, "lifecycle", "");
  CHECK(query == "list-type=2&prefix=a%2Fb%20c&lifecycle=");
}

TEST_CASE("every byte survives encoding and decoding", "[s3][uri]") {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  CHECK(text::uri_decode(text::encode_path(all)) == all);
  CHECK(text::uri_decode(text::encode_query(all)) == all);
  CHECK(text::uri_decode(text::encode_query(all), text::plus_sign::space) == all);
}

TEST_CASE("decoding is strict", "[s3][uri]") {
  CHECK(text::uri_decode("a%2fb%2F") == std::string("a/b/"));
  CHECK(text::uri_decode("a+b") == std::string("a+b"));
  CHECK(text::uri_decode("a+b%2B", text::plus_sign::space) == std::string("a b+"));
  for (const char* broken : {"%", "%2", "a%", "%zz", "%2g", "%g2", "%%20", "% 20"}) {
    INFO(broken);
    CHECK_FALSE(text::uri_decode(broken).has_value());
  }
  CHECK_FALSE(text::uri_decode(std::string_view("%41").substr(0, 2)).has_value());
}

TEST_CASE("the sdkutils table encodes alike", "[s3][uri]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  const auto table = millrace::test::read_json(data + "/endpoints/sdkutils-uri-encode.json");
  for (const auto& c : table.at("testCases")) {
    const std::string input = c.at("params").at("Input");
    CHECK("The value is: `" + text::encode_query(input) + "`" == c.at("expect").at("error").get<std::string>());
  }
}
