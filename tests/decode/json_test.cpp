// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#if __has_include(<nlohmann/json.hpp>)

#include <millrace/decode/json.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace test_json {

/// A user's type, with the conversion that nlohmann's library looks for.
struct odd {
  int value = 1;
};
void from_json(const nlohmann::json& from, odd& to) {
  from.get_to(to.value);
  if (to.value % 2 == 0) throw decode_error("the number is even");
}

}  // namespace test_json

namespace {

const where here{"s3://b/train.tar", 512, "images/0001"};

nlohmann::json parsed(const char* text) { return parse_json(bytes::copy(text), here); }

/// Why `text` is no JSON; "" when it is. Every error names the object, the offset and the sample.
std::string fault(const char* text) {
  try {
    parsed(text);
    return "";
  } catch (const decode_error& e) {
    CHECK(e.object() == here.object);
    CHECK(e.offset() == here.offset);
    CHECK(e.key() == here.key);
    return e.reason();
  }
}

/// Why member "x" of `text` is no T; "" when it is.
template <class T>
std::string refusal(const char* text) {
  try {
    json_value<T>(parsed(text), "x", here);
    return "";
  } catch (const decode_error& e) {
    CHECK(e.object() == here.object);
    CHECK(e.key() == here.key);
    return e.reason();
  }
}

template <class T>
T value(const char* text) {
  return json_value<T>(parsed(text), "x", here);
}

}  // namespace

TEST_CASE("JSON is parsed, and what is none is a decode_error that says where") {
  CHECK(parsed(R"({"x": [1, "two", null]})")["x"].size() == 3);
  CHECK_THAT(fault(R"({"x": )"), Contains("parse error at byte 7"));
  CHECK_THAT(fault(""), Contains("not JSON"));
  CHECK_THAT(fault("{} {}"), Contains("parse error at byte 4"));
  CHECK_THAT(fault("\"\xff\""), Contains("not JSON"));
  CHECK(fault("\"bad \xc3\xa9\"") == "");
}

TEST_CASE("a number that no double holds is a decode_error too") {
  CHECK_THAT(fault(R"({"x": 1e999})"), Contains("1e999"));
  CHECK(value<double>(R"({"x": 1e300})") == 1e300);
}

TEST_CASE("integers are taken whole or not at all") {
  CHECK(value<std::uint8_t>(R"({"x": 255})") == 255);
  CHECK_THAT(refusal<std::uint8_t>(R"({"x": 256})"), Contains("\"x\" is 256") && Contains("0 to 255"));
  CHECK_THAT(refusal<std::uint8_t>(R"({"x": 300})"), Contains("\"x\" is 300"));
  CHECK(value<std::int8_t>(R"({"x": -128})") == -128);
  CHECK_THAT(refusal<std::int8_t>(R"({"x": -129})"), Contains("-128 to 127"));
  CHECK_THAT(refusal<std::int8_t>(R"({"x": 128})"), Contains("-128 to 127"));
  CHECK_THAT(refusal<unsigned>(R"({"x": -1})"), Contains("\"x\" is -1") && Contains("0 to 4294967295"));
  CHECK(value<unsigned>(R"({"x": 4294967295})") == 4294967295u);
  CHECK(refusal<unsigned>(R"({"x": 4294967296})") != "");
  CHECK(value<std::int64_t>(R"({"x": -9223372036854775808})") == std::numeric_limits<std::int64_t>::min());
  CHECK(refusal<std::int64_t>(R"({"x": 9223372036854775808})") != "");
  CHECK(value<std::uint64_t>(R"({"x": 18446744073709551615})") == std::numeric_limits<std::uint64_t>::max());
  CHECK(refusal<std::uint64_t>(R"({"x": 18446744073709551616})") != "");
  CHECK(refusal<std::uint64_t>(R"({"x": -1})") != "");
}

TEST_CASE("nothing else becomes an integer") {
  CHECK_THAT(refusal<int>(R"({"x": 3.7})"), Contains("\"x\" is 3.7") && Contains("not an integer"));
  CHECK_THAT(refusal<int>(R"({"x": 3.0})"), Contains("not an integer"));
  CHECK_THAT(refusal<int>(R"({"x": true})"), Contains("is a boolean, not an integer"));
  CHECK_THAT(refusal<int>(R"({"x": "3"})"), Contains("is a string, not an integer"));
  CHECK_THAT(refusal<int>(R"({"x": null})"), Contains("is null, not an integer"));
  CHECK_THAT(refusal<int>(R"({"x": [3]})"), Contains("is an array, not an integer"));
}

TEST_CASE("booleans are booleans") {
  CHECK(value<bool>(R"({"x": true})"));
  CHECK(!value<bool>(R"({"x": false})"));
  CHECK_THAT(refusal<bool>(R"({"x": 1})"), Contains("\"x\" is 1, not a boolean"));
  CHECK_THAT(refusal<bool>(R"({"x": "true"})"), Contains("not a boolean"));
}

TEST_CASE("floating-point values come from any number that they can hold") {
  CHECK(value<double>(R"({"x": 3})") == 3);
  CHECK(value<float>(R"({"x": -0.5})") == -0.5f);
  CHECK(value<double>(R"({"x": 18446744073709551615})") == 18446744073709551615.0);
  CHECK_THAT(refusal<float>(R"({"x": 1e39})"), Contains("is 1e+39") && Contains("too large"));
  CHECK(refusal<float>(R"({"x": -1e39})") != "");
  CHECK_THAT(refusal<double>(R"({"x": true})"), Contains("is a boolean, not a number"));
  CHECK_THAT(refusal<double>(R"({"x": "1"})"), Contains("is a string, not a number"));
}

TEST_CASE("the elements of a vector are as strict") {
  CHECK(value<std::vector<std::uint8_t>>(R"({"x": [0, 255]})") == std::vector<std::uint8_t>{0, 255});
  CHECK(value<std::vector<float>>(R"({"x": []})").empty());
  CHECK(value<std::vector<std::vector<int>>>(R"({"x": [[1], [2, 3]]})")[1][1] == 3);
  CHECK_THAT(refusal<std::vector<std::uint8_t>>(R"({"x": [0, 256]})"), Contains("\"x[1]\" is 256"));
  CHECK_THAT(refusal<std::vector<std::vector<int>>>(R"({"x": [[1], [2, 3.5]]})"), Contains("\"x[1][1]\" is 3.5"));
  CHECK_THAT(refusal<std::vector<int>>(R"({"x": {"0": 1}})"), Contains("is an object, not an array"));
  CHECK_THAT(refusal<std::vector<int>>(R"({"x": 1})"), Contains("not an array"));
}

TEST_CASE("other types are nlohmann's to convert, with the error of this library") {
  CHECK(value<std::string>(R"({"x": "cat"})") == "cat");
  CHECK_THAT(refusal<std::string>(R"({"x": 3})"), Contains("\"x\" is 3"));
  CHECK_THAT(refusal<std::string>(R"({"x": [1]})"), Contains("\"x\" is an array"));
  CHECK(value<nlohmann::json>(R"({"x": [1]})").is_array());
}

TEST_CASE("what a conversion of the user's own throws is left alone when it is an error of this library") {
  CHECK_THROWS_WITH(json_value<test_json::odd>(parsed(R"({"x": 2})"), "x", here), Contains("even"));
  CHECK(json_value<test_json::odd>(parsed(R"({"x": 3})"), "x", here).value == 3);
  CHECK_THAT(refusal<test_json::odd>(R"({"x": "3"})"), Contains("is a string"));
}

TEST_CASE("a member that is not there, and what has no members") {
  CHECK_THAT(refusal<int>(R"({"y": 1})"), Contains("no member \"x\""));
  CHECK_THAT(refusal<int>("[1]"), Contains("no member \"x\""));
  CHECK_THAT(refusal<int>("null"), Contains("no member \"x\""));
}

TEST_CASE("JSON may be any text, not a field alone") {
  const std::string manifest = R"({"x": 3} {"x": 4})";
  CHECK(json_value<int>(parse_json(std::string_view(manifest).substr(0, 8)), "x") == 3);
  CHECK(json_value<int>(parse_json(R"({"x": 5})"), "x") == 5);
  CHECK_THROWS_AS(parse_json(manifest), decode_error);
}

#else

#include "tests/support/catch.hpp"

TEST_CASE("JSON fields") { MILLRACE_SKIP("nlohmann/json.hpp is not installed (Debian: nlohmann-json3-dev)"); }

#endif
