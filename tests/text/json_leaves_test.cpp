// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/text/json_leaves.hpp>

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/catch.hpp"

using json = nlohmann::json;
using millrace::text::json_leaves;

TEST_CASE("paths of leaves take no more memory than the text is good for") {
  const std::string name(20'000, 'n');
  std::string items = "1";
  for (int i = 0; i < 20'000; ++i) items += ",1";
  const std::string text = "{\"" + name + "\":[" + items + "]}";  // 60 KB, and 400 MB of paths
  CHECK(!json_leaves::parse(text, json_leaves::arrays::kept));
  CHECK(json_leaves::parse(text));
  CHECK(json_leaves::parse("{\"n\":[" + items + "]}", json_leaves::arrays::kept)->all().size() == 20'001);
}

TEST_CASE("strings and numbers of a JSON document are found by their place", "[text][json]") {
  const auto j = json_leaves::parse(
      "\r\n\t { \"a\" : \"x\\n\\\"\\u00e9\\ud83d\\ude00\\/\" , \"b\":{\"c\":{\"d\":-1.5e+3},\"n\":42},\n"
      "\"list\":[\"no\",{\"a\":\"hidden\"},[]],\"t\":true,\"f\":false,\"z\":null,\"a\":\"again\",\"e\":{},\"s\":\"\"}"
      " ");
  REQUIRE(j);
  CHECK(j->find("a") == "again");
  CHECK(j->find("b/c/d") == "-1.5e+3");
  CHECK(j->find("b/n") == "42");
  CHECK(j->find_number("b/n") == 42);
  CHECK(j->find("s") == "");
  for (const char* absent : {"list", "list/a", "t", "z", "b", "b/c", "nothing", "e"}) CHECK_FALSE(j->find(absent));
  CHECK_FALSE(j->find_number("b/c/d"));
  CHECK_FALSE(j->find_number("a"));
  CHECK(json_leaves::parse("{\"a\":\"x\\n\\\"\\u00e9\\ud83d\\ude00\\/\"}")->find("a") ==
        "x\n\"\xc3\xa9\xf0\x9f\x98\x80/");
  CHECK(json_leaves::parse("7")->find("") == "7");
}

TEST_CASE("the items of arrays are kept where that is asked for", "[text][json]") {
  const auto j =
      json_leaves::parse(R"({"a": [1, {"b": "x", "c": [[2], null, 3]}, []], "d": 4})", json_leaves::arrays::kept);
  REQUIRE(j);
  CHECK(j->all() == std::vector<std::pair<std::string, std::string>>{
                        {"a/0", "1"}, {"a/1/b", "x"}, {"a/1/c/0/0", "2"}, {"a/1/c/2", "3"}, {"d", "4"}});
  CHECK(json_leaves::parse("[7]", json_leaves::arrays::kept)->find("0") == "7");
  CHECK_FALSE(json_leaves::parse("[7]")->find("0"));
}

TEST_CASE("what is no intact JSON document is refused, as by a large parser", "[text][json]") {
  const char* texts[] = {"",
                         "{",
                         "}",
                         "{\"a\"}",
                         "{\"a\":}",
                         "{\"a\":1,}",
                         "{a:1}",
                         "{'a':1}",
                         "{\"a\":01}",
                         "{\"a\":.5}",
                         "{\"a\":1.}",
                         "{\"a\":-}",
                         "{\"a\":1e}",
                         "[1,]",
                         "[1",
                         "tru",
                         "nul",
                         "\"\\x\"",
                         "\"\\u12\"",
                         "\"\\ud800\"",
                         "\"\\udc00\"",
                         "\"a",
                         "1 2",
                         "{}{}",
                         "\"\n\"",
                         "{\"a\":1]",
                         "[1}",
                         "{\"a\" 1}",
                         "\"\\",
                         "\"\\u",
                         "-",
                         "+1",
                         "\"\\ud800\\n\"",
                         "\"\\ud800\\u0041\""};
  for (const char* text : texts) {
    INFO(text);
    CHECK_FALSE(json::accept(text));
    CHECK_FALSE(json_leaves::parse(text));
  }
  for (const char* text : {"{}", "[]", "0", "-0.5E-7", "[[[]]]", "{\"\":{\"\":1}}", " null "}) {
    INFO(text);
    CHECK(json_leaves::parse(text));
  }
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
  };
  CHECK(json_leaves::parse(nested(16)));
  CHECK_FALSE(json_leaves::parse(nested(100000)));
  // Cut anywhere it is not valid.
  const std::string whole = "{\"a\":{\"b\":\"\\u0041\",\"c\":[1,2.5,true]}}";
  REQUIRE(json_leaves::parse(whole));
  for (std::size_t n = 0; n < whole.size(); ++n) CHECK_FALSE(json_leaves::parse(whole.substr(0, n)));
}
