// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/json_reader.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"

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
  const std::string text = R"({"id": -3, "more": {"id": 9, "text": [1]}, "good": true, "tags": [1, 255], )"
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

namespace {

/// Two members, one of which may be missing, asked for in this order or the other.
struct pair {
  std::optional<std::string> text;
  std::int64_t id = -1;
};
json_reader<pair> pair_reader(bool id_first, const char* text_name = "text", const char* id_name = "id") {
  json_reader<pair> r;
  if (id_first) r.member(id_name, &pair::id);
  r.member(text_name, &pair::text);
  if (!id_first) r.member(id_name, &pair::id);
  return r;
}

/// Why, by readers of both orders: one answer.
std::string pair_fault(const std::string& text) {
  std::string said[2];
  for (int order = 0; order < 2; ++order) {
    try {
      pair_reader(order == 1)(text);
    } catch (const decode_error& e) {
      said[order] = e.reason();
    }
  }
  CHECK(said[0] == said[1]);
  return said[0];
}

template <class U>
struct one_member {
  U x{};
};
template <class U>
U read_one(const std::string& value) {
  json_reader<one_member<U>> r;
  r.member("x", &one_member<U>::x);
  return r("{\"x\":" + value + "}").x;
}
template <class U>
std::string one_fault(const std::string& value) {
  try {
    read_one<U>(value);
  } catch (const decode_error& e) {
    return e.reason();
  }
  return "";
}

}  // namespace

// What is right is what json.loads of CPython 3.11 says, where it is strict.
TEST_CASE("names are compared after their escapes") {
  const auto chinese = pair_reader(false, "\xe6\x96\x87\xe6\x9c\xac");
  const auto slash = pair_reader(false, "a/b");
  const auto smile = pair_reader(true, "\xf0\x9f\x98\x80");
  const auto quote = pair_reader(true, "a\"\\\n");
  const auto none = pair_reader(true, "");
  CHECK(chinese(R"({"\u6587\u672c":"a","\u0069\u0064":1})").text == "a");
  CHECK(chinese("{\"\xe6\x96\x87\xe6\x9c\xac\":\"b\",\"id\":1}").text == "b");
  CHECK(slash(R"({"a\/b":"c","\u0069d":7})").text == "c");
  CHECK(slash(R"({"a\/b":"c","\u0069d":7})").id == 7);
  CHECK(smile(R"({"id":1,"\ud83d\ude00":"d"})").text == "d");
  CHECK(smile(R"({"id":1,"\uD83D\uDE00" : "D"})").text == "D");
  CHECK(quote(R"({"id":1,"a\"\\\n":"e"})").text == "e");
  CHECK(quote(R"({"id":1,"a\u0022\u005c\u000A":"f"})").text == "f");
  CHECK(none(R"({"id":1,"":"g"})").text == "g");
  CHECK(pair_reader(true, "text", "t")(R"({"tex":"x","\u0074":2,"texts":"y"})").id == 2);
  // Nothing that only looks alike.
  CHECK_FALSE(slash(R"({"a\\/b":"c","id":7})").text);
  CHECK_FALSE(none(R"({"id":1,"\u0000":"g"})").text);
  // json.loads takes half of a surrogate pair; no member has such a name.
  CHECK(pair_reader(true)(R"({"\ud83d":1,"id":3,"\udc00x":[]})").id == 3);
  CHECK_THAT(pair_fault(R"({"\u12g4":1,"id":3})"),
             Contains("\\u without four hexadecimal digits at byte 2 of the text"));
  CHECK_THAT(pair_fault(R"({"\x41":1,"id":3})"), Contains("an escape that JSON does not know"));
}

TEST_CASE("of a name that stands twice the last counts, whatever the order of the reader's members") {
  for (const bool id_first : {false, true}) {
    const auto read = pair_reader(id_first);
    CHECK(read(R"({"id":1,"text":"a","id":2})").id == 2);
    CHECK(read(R"({"id":1,"id":2,"text":"a","\u0069d":3})").id == 3);
    CHECK(read(R"({"id":"no number","text":"a","id":2})").id == 2);  // json.loads never shows the first
    CHECK(read(R"({"id":{"id":4},"text":"a","id":2})").id == 2);
    CHECK(read(R"({"id":2,"text":"a","more":{"id":4,"id":5}})").id == 2);
    CHECK_FALSE(read(R"({"id":1,"text":"a","text":null})").text);
    CHECK(read(R"({"id":1,"text":null,"text":"b"})").text == "b");
    CHECK(read(R"({"text":"\ud83d","id":1,"text":"b"})").text == "b");
  }
  CHECK_THAT(pair_fault(R"({"id":1,"text":"a","id":"x"})"), Contains("\"id\" is not an integer"));
  CHECK_THAT(pair_fault(R"({"id":tru,"text":"a","id":1})"), Contains("not JSON"));
  struct list {
    std::vector<int> x{7};
  };
  json_reader<list> lists;
  lists.member("x", &list::x);
  CHECK(lists(R"({"x":[1,2],"x":[3]})").x == std::vector<int>{3});
  CHECK(lists(R"({"x":[1,"2",{"a":[]}],"x":[3]})").x == std::vector<int>{3});
  CHECK_THROWS_AS(lists.member("x", &list::x), usage_error);
}

TEST_CASE("one text is one document") {
  for (const char* const text :
       {R"({"id":1,"text":"a"}{"id":2,"text":"b"})", R"({"id":1} {"id":2})", "{\"id\":1}\n{\"id\":2}", R"({"id":1}])",
        R"({"id":1}})", R"({"id":1} 7)", R"({"id":1},)", R"({"id":1} // one)", R"({"id":1}null)", "{\"id\":1}\x01"}) {
    CAPTURE(text);
    CHECK_THAT(pair_fault(text), Contains("not JSON: extra data after the document at byte "));
  }
  CHECK_THAT(pair_fault(R"({"id":1,"text":"a"}{"id":2})"), Contains("at byte 19 of the text"));
  for (const char* const text : {"{\"id\":1}\r", " \t{\"id\":1}\r\n", "\n{ \"id\" : 1 }\n\n"})
    CHECK(pair_fault(text) == "");
}

TEST_CASE("what is passed over is checked all the same") {
  for (const char* const rest : {"tru",
                                 "truex",
                                 "nul",
                                 "1x",
                                 "007",
                                 "-",
                                 "1.",
                                 ".5",
                                 "+1",
                                 "0x10",
                                 "1e",
                                 "[1,]",
                                 "[,1]",
                                 "[1 2]",
                                 "[1}",
                                 "{\"a\"}",
                                 "{\"a\":}",
                                 "{\"a\":1,}",
                                 "{a:1}",
                                 "{'a':1}",
                                 "'a'",
                                 "[1,[2,[3}]]",
                                 "{\"a\":{\"b\":[}}",
                                 R"("\x")",
                                 R"("\u12")",
                                 R"(["\ "])",
                                 "",
                                 "nan",
                                 "inf",
                                 "--1",
                                 "1_0",
                                 "undefined",
                                 "[tru]",
                                 "[\"a\"\"b\"]",
                                 "1 2"}) {
    for (const bool first : {false, true}) {
      const std::string more = std::string("\"more\":") + rest;
      const std::string text = first ? "{" + more + ",\"id\":1}" : "{\"id\":1," + more + "}";
      CAPTURE(text);
      CHECK_THAT(pair_fault(text), Contains("not JSON: ") && Contains(" at byte "));
    }
  }
  for (const char* const text : {R"({"id":1,})", R"({,"id":1})", R"({"id":1 "text":"a"})", R"({"id" 1})", R"({"id":1)",
                                 R"({id:1})", R"({"id":1;"text":"a"})", R"({1:2,"id":1})"}) {
    CAPTURE(text);
    CHECK_THAT(pair_fault(text), Contains("not JSON: "));
  }
  // What json.loads takes, RFC 8259 or not.
  for (const char* const rest :
       {"NaN", "[Infinity,-Infinity]", R"("\ud83d")", "1e400", "123456789012345678901234567890", "-0", "[]", "{}",
        "[{}]", R"({"a":[{"b":{}},"x\"]",null]})", "0.5e-3", R"("]}")", "[ ]", "{ }",
        " [ 1 , { \"a\" : -1.5E+3 } ] "}) {
    CAPTURE(rest);
    CHECK(pair_fault(std::string("{\"more\":") + rest + ",\"id\":1}") == "");
    CHECK(pair_fault(std::string("{\"id\":1,\"more\":") + rest + "}") == "");
  }
}

TEST_CASE("errors say what text that is no JSON is") {
  CHECK(pair_reader(true)("\xef\xbb\xbf{\"id\":1}").id == 1);  // json.loads of bytes: utf-8-sig
  CHECK_THAT(pair_fault("\xef\xbb\xbf\xef\xbb\xbf{\"id\":1}"), Contains("byte order mark"));
  CHECK_THAT(pair_fault(std::string("\xff\xfe{\0\"\0", 6)), Contains("byte order mark of UTF-16"));
  CHECK_THAT(pair_fault("\xef\xbb\xbf"), Contains("the text is empty"));
  CHECK_THAT(pair_fault(""), Contains("the text is empty"));
  CHECK_THAT(pair_fault("\r"), Contains("the text is empty"));
  CHECK(pair_fault(" [1]") == "not a JSON object, but an array");
  CHECK(pair_fault("7 ") == "not a JSON object, but a number");
  CHECK(pair_fault("-0.5") == "not a JSON object, but a number");
  CHECK(pair_fault("\"{}\"") == "not a JSON object, but a string");
  CHECK(pair_fault("null") == "not a JSON object, but null");
  CHECK(pair_fault("true") == "not a JSON object, but a boolean");
  CHECK_THAT(pair_fault("7 8"), Contains("extra data"));
  CHECK_THAT(pair_fault("[1]{\"id\":1}"), Contains("extra data"));
  CHECK_THAT(pair_fault("{\"id\":1,\"text\":\"a\tb\"}"),
             Contains("a control character in a string") && Contains("byte 17"));
  CHECK_THAT(pair_fault("{\"id\":1,\"te\nxt\":1}"), Contains("a control character in a string"));
  CHECK_THAT(pair_fault("{\"id\":1,\"more\":\"a\xff\"}"), Contains("no UTF-8"));
  CHECK_THAT(pair_fault("{\"id\":1,\"more\":\"\xed\xa0\xbd\"}"), Contains("no UTF-8"));  // CESU-8
  CHECK_THAT(pair_fault("{\"id\":1,\"more\":\"abc"), Contains("the text ends inside a string"));
  CHECK_THAT(pair_fault("{\"id\":1,\"more\":[1"), Contains("the text ends inside an object or array"));
}

TEST_CASE("half of a surrogate pair is no text") {
  for (const char* const text :
       {R"("\ud83d")", R"("\udc00")", R"("a\ud83db")", R"("\ud83d\u0041")", R"("\ud83d\ud83d\ude00")",
        R"("\ude00\ud83d")", R"("\ud83d\n\ude00")", R"("\\\uDBFF")"}) {
    CAPTURE(text);
    CHECK_THAT(one_fault<std::string>(text), Contains("\"x\" has a lone surrogate"));
  }
  CHECK(read_one<std::string>(R"("\\ud83d \ud83d\ude00 \\\\\uD83D\uDE00")") ==
        "\\ud83d \xf0\x9f\x98\x80 \\\\\xf0\x9f\x98\x80");
  CHECK(read_one<std::string>(R"("\u0000")") == std::string(1, '\0'));
}

TEST_CASE("numbers are those of JSON") {
  CHECK(read_one<std::int64_t>("-0") == 0);
  CHECK(read_one<unsigned>("-0") == 0);
  CHECK(std::signbit(read_one<double>("-0")));
  CHECK(read_one<std::uint64_t>("18446744073709551615") == 18446744073709551615u);
  CHECK(read_one<double>("123456789012345678901234567890") == 123456789012345678901234567890.0);
  CHECK(read_one<double>("1e-400") == 0);
  CHECK(read_one<double>("1E5") == 100000);
  for (const char* const text : {"1e3", "1E0", "1.0", "18446744073709551616", "-1"}) {
    CAPTURE(text);
    CHECK(one_fault<std::uint64_t>(text) == "the JSON member \"x\" is not an integer in the range of its type");
  }
  for (const char* const text : {"007", "00", "-01", "1.", "1.e5", "0x1", "+1", ".5", "-", "1_0", "01.5"}) {
    CAPTURE(text);
    CHECK_THAT(one_fault<std::int64_t>(text), Contains("not JSON: "));
    CHECK_THAT(one_fault<std::uint8_t>(text), Contains("not JSON: "));
    CHECK_THAT(one_fault<double>(text), Contains("not JSON: "));
    CHECK_THAT(one_fault<std::vector<double>>(std::string("[1,") + text + "]"), Contains("not JSON: "));
  }
  CHECK_THAT(one_fault<int>("007"), Contains("begins with zeros at byte 5"));
  CHECK(one_fault<double>("1e400") == "the JSON member \"x\" is too large for its type");
  CHECK(one_fault<double>("-1e400 ") == "the JSON member \"x\" is too large for its type");
  CHECK(one_fault<float>("1e39") == "the JSON member \"x\" is too large for its type");
  for (const char* const text : {"NaN", "Infinity", "-Infinity"}) {
    CAPTURE(text);
    CHECK_THAT(one_fault<double>(text), Contains("NaN or Infinity, for which JSON has no number"));
    CHECK_THAT(one_fault<std::int64_t>(text), Contains("is not an integer"));
    CHECK_THAT(one_fault<std::vector<float>>(std::string("[") + text + "]"), Contains("element of another type"));
  }
  CHECK_THAT(one_fault<std::string>("null"), Contains("is not a string"));
  CHECK_THAT(one_fault<std::string>("[\"a\"]"), Contains("is not a string"));
  CHECK_THAT(one_fault<std::vector<int>>("null"), Contains("is not an array"));
  CHECK_THAT(one_fault<std::vector<int>>("[1,null]"), Contains("element of another type"));
  CHECK(read_one<std::vector<std::optional<int>>>("[1,null]").size() == 2);
  CHECK(read_one<std::vector<std::vector<int>>>("[[],[1,2],[]]")[1][1] == 2);
}

TEST_CASE("whole numbers are taken in the range of their type or not at all") {
  CHECK(read_one<std::uint8_t>("255") == 255);
  CHECK(read_one<std::int8_t>("-128") == -128);
  CHECK(read_one<unsigned>("4294967295") == 4294967295u);
  CHECK(read_one<std::int64_t>("-9223372036854775808") == std::numeric_limits<std::int64_t>::min());
  CHECK(read_one<std::vector<std::uint8_t>>("[0,255]") == std::vector<std::uint8_t>{0, 255});
  CHECK(one_fault<std::uint8_t>("256") != "");
  CHECK(one_fault<std::uint8_t>("-1") != "");
  CHECK(one_fault<std::int8_t>("-129") != "");
  CHECK(one_fault<std::int8_t>("128") != "");
  CHECK(one_fault<unsigned>("4294967296") != "");
  CHECK(one_fault<unsigned>("-1") != "");
  CHECK(one_fault<std::int64_t>("9223372036854775808") != "");
  for (const char* const text : {"3.7", "3.0", "true", "\"3\"", "null", "[3]", "{}"}) {
    CAPTURE(text);
    CHECK_THAT(one_fault<int>(text), Contains("\"x\" is not an integer"));
  }
}

TEST_CASE("objects and arrays nest 1024 deep and no deeper") {
  const auto nested = [](std::size_t depth) {
    return "{\"id\":1,\"more\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  CHECK(pair_fault(nested(1024)) == "");
  CHECK_THAT(pair_fault(nested(1025)), Contains("nested more than 1024 deep"));
  CHECK_THAT(pair_fault(nested(300000)), Contains("nested more than 1024 deep"));
  CHECK_THAT(pair_fault("{\"id\":1,\"more\":" + std::string(300000, '[')), Contains("nested more than 1024 deep"));
}

TEST_CASE("JSON lines that people reported") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data: set MILLRACE_TEST_DATA");
  const auto lines = [&](const char* name) {
    std::istringstream in(test::read_file(folder + "/odd/" + name + ".jsonl"));
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  };
  CHECK(pair_reader(true, "\xe6\x96\x87\xe6\x9c\xac")(lines("escaped_names").at(0)).text == "a");
  json_reader<one_member<int>> slash;
  slash.member("a/b", &one_member<int>::x);
  CHECK(slash(lines("escaped_names").at(1)).x == 2);
  CHECK_THAT(pair_fault(lines("two_documents").at(0)), Contains("extra data"));
  CHECK(pair_fault(lines("two_documents").at(1)) == "");
  CHECK(pair_reader(true)(lines("name_twice").at(0)).id == 2);
  CHECK(pair_reader(false)(lines("name_twice").at(0)).id == 2);
  CHECK(pair_reader(true)(lines("bom").at(0)).text == "a");
  CHECK(pair_reader(true)(lines("bom").at(1)).text == "b");
  CHECK_THAT(pair_fault(lines("lone_surrogate").at(0)), Contains("\"text\" has a lone surrogate"));
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
