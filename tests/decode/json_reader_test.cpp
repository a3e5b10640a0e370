// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/json_reader.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

struct document {
  std::string text;
  std::int32_t id = 0;
  std::optional<double> score;
  std::vector<std::uint8_t> tags;
  bool good = false;
};

json_reader<document> reader() {
  json_reader<document> r;
  r.member("text", &document::text).member("id", &document::id).member("score", &document::score);
  r.member("tags", &document::tags).member("good", &document::good);
  return r;
}

std::string refusal(const std::string& text) {
  try {
    reader()(text, where{"s3://b/a.jsonl", 77, {}});
  } catch (const decode_error& e) {
    CHECK(e.object() == "s3://b/a.jsonl");
    CHECK(e.offset() == 77u);
    return e.reason();
  }
  return "nothing was refused";
}

}  // namespace

TEST_CASE("members of a JSON object are picked by name, in any order, from any kind of text") {
  const std::string text =
      R"({"id": -3, "more": {"id": 9, "text": [1]}, "good": true, "tags": [1, 255], )"
      R"("text": "a\u00e9\n\"", "score": 1.5})";
  const json_reader<document> read = reader();
  for (const document& d : {read(text), read(std::string_view(text)), read(bytes::copy(text)), read(text.c_str())}) {
    CHECK(d.text == "a\xc3\xa9\n\"");
    CHECK(d.id == -3);
    CHECK(d.score == 1.5);
    CHECK(d.tags == std::vector<std::uint8_t>{1, 255});
    CHECK(d.good);
  }
  CHECK_FALSE(read(R"({"id":1,"text":"","tags":[],"good":false})").score);
  CHECK_FALSE(read(R"({"id":1,"text":"","tags":[],"good":false,"score":null})").score);
}

TEST_CASE("what is missing, of another type or out of range is refused with its name and place") {
  CHECK(refusal(R"({"id":1})") == "the JSON has no member \"text\"");
  CHECK(refusal(R"({"text":1})") == "the JSON member \"text\" is not a string");
  for (const char* const id : {"2147483648", "-2147483649", "1.5", "\"1\"", "true", "null", "99999999999999999999"}) {
    CAPTURE(id);
    CHECK(refusal(std::string(R"({"text":"","id":)") + id + "}") ==
          "the JSON member \"id\" is not an integer in the range of its type");
  }
  CHECK_THAT(refusal(R"({"text":"","id":1,"score":"x"})"), Contains("\"score\" is not a number"));
  CHECK_THAT(refusal(R"({"text":"","id":1,"tags":[1,256]})"), Contains("\"tags\" has an element of another type"));
  CHECK_THAT(refusal(R"({"text":"","id":1,"tags":{}})"), Contains("\"tags\" is not an array"));
  CHECK_THAT(refusal(R"({"text":"","id":1,"tags":[],"good":1})"), Contains("\"good\" is not a boolean"));
  for (const char* const text :
       {"", " ", "[1]", "7", "null", "{", R"({"text")", R"({"text":"abc)", "\x01", "{\"text\":\"\xff\"}"}) {
    CAPTURE(text);
    CHECK(refusal(text) != "nothing was refused");
  }
}

TEST_CASE("text that is cut anywhere is refused or lacks nothing that was asked for") {
  const std::string text = R"({"text":"abc","id":12,"tags":[1,2,3],"good":true,"score":2.5})";
  for (std::size_t length = 0; length < text.size(); ++length) {
    CAPTURE(length);
    CHECK(refusal(text.substr(0, length)) != "nothing was refused");
  }
}

TEST_CASE("one reader serves many threads") {
  const json_reader<document> read = reader();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string text = R"({"text":")" + std::string(static_cast<std::size_t>(i * 10), 'x') + R"(","id":)" +
                                 std::to_string(i) + R"(,"tags":[],"good":false})";
        const document d = read(text);
        if (d.id != i || d.text.size() != static_cast<std::size_t>(i * 10)) ++wrong[t];
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == std::vector<int>(4));
}
