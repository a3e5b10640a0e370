// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/ops/list_objects.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using test::scripted_answer;
using names = std::vector<std::string>;

namespace {

/// A page of one object (none without a key), and the token of the next page; the last page without one.
scripted_answer page(const std::string& key, const std::string& next) {
  const std::string object = key.empty() ? "" : "<Contents><Key>" + key + "</Key><Size>1</Size></Contents>";
  const std::string xml = "<ListBucketResult><IsTruncated>" + std::string(next.empty() ? "false" : "true") +
                          "</IsTruncated><NextContinuationToken>" + next + "</NextContinuationToken>" + object +
                          "</ListBucketResult>";
  return {"HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(xml.size()) + "\r\n\r\n" + xml};
}

task<void> collect(stream<shard> listing, names& out) {
  while (std::optional<shard> s = co_await listing.next()) out.push_back(s->url);
}

/// What the listing of bucket "b" gives, and last what ends it if that is an error.
names listed(const test::scripted_server& server) {
  const std::string endpoint = server.url("");
  const s3::client c(s3::config({.region = "us-east-1", .endpoint = endpoint}), s3::credentials("key", "secret"));
  const auto loop = make_event_loop();
  names out;
  try {
    block_on(*loop, collect(c.list("s3://b/"), out));
  } catch (const s3::error& e) {
    out.push_back(e.reason());
  }
  return out;
}

const std::string repeats = "the listing repeats its continuation token";

}  // namespace

TEST_CASE("a server that does not understand continuation tokens lists nothing twice", "[s3][list]") {
  const test::scripted_server server({page("first", "next")});
  CHECK(listed(server) == names{"s3://b/first", repeats});
  CHECK(server.requests().size() == 2);
}

TEST_CASE("an index that lies among the shards is not listed as one of them, and that is said", "[s3][list]") {
  const test::scripted_server server({page("millrace.index", "1"), page("a/millrace.index", "2"), page("x.index", "")});
  test::captured_stderr said(test::captured_stderr::into::pipe);
  CHECK(listed(server) == names{"s3://b/x.index"});
  CHECK(said.text() ==
        "millrace: the listing leaves out an index: s3://b/millrace.index\n"
        "millrace: the listing leaves out an index: s3://b/a/millrace.index\n");
}

TEST_CASE("a prefix that no object has is a mistake of the configuration, not an answer of the store", "[s3][list]") {
  const test::scripted_server server({page("", "")});
  const std::string endpoint = server.url("");
  const s3::client c(s3::config({.region = "us-east-1", .endpoint = endpoint}), s3::credentials("key", "secret"));
  const auto loop = make_event_loop();
  names out;
  try {
    block_on(*loop, collect(c.list("s3://b/trian/"), out));
    FAIL("it has ended as if there were nothing to read");
  } catch (const configuration_error& e) {
    CHECK(e.object() == "s3://b/trian/");
    CHECK(e.reason() == "no object has this prefix");
  }
}

TEST_CASE("a listing whose pages go in circles ends", "[s3][list]") {
  const test::scripted_server two({page("1", "A"), page("2", "B"), page("3", "A"), page("2", "B"), page("3", "A"),
                                   page("2", "B"), page("3", "A"), page("4", "")});
  CHECK(listed(two) == names{"s3://b/1", "s3://b/2", "s3://b/3", repeats});

  for (const std::size_t before : {0, 1, 4, 9}) {
    for (const std::size_t around : {1, 2, 3, 8, 11}) {
      INFO(before << " pages, then a circle of " << around);
      std::vector<scripted_answer> pages;
      for (std::size_t i = 0; i < 100; ++i) {
        const std::size_t n = i < before ? i : before + (i - before) % around;
        pages.push_back(page("k" + std::to_string(i), "token-" + std::to_string(n)));
      }
      pages.push_back(page("k", ""));
      const test::scripted_server server(pages);
      CHECK(listed(server).back() == repeats);
      CHECK(server.requests().size() <= 3 * (before + around) + 3);
    }
  }
}

TEST_CASE("pages that repeat under new tokens end the listing", "[s3][list]") {
  for (const std::size_t around : {1, 2, 5}) {
    INFO(around << " pages again and again");
    std::vector<scripted_answer> pages;
    for (std::size_t i = 0; i < 100; ++i) {
      pages.push_back(page("k" + std::to_string(i % around), "token-" + std::to_string(i)));
    }
    pages.push_back(page("k", ""));
    const test::scripted_server server(pages);
    names expected;
    for (std::size_t i = 0; i < around; ++i) expected.push_back("s3://b/k" + std::to_string(i));
    expected.push_back("the listing repeats its keys: it may not end");
    CHECK(listed(server) == expected);
    CHECK(server.requests().size() <= around + 3);
  }
}

TEST_CASE("prefixes that the store rolls up without being asked are said to be left out", "[s3][list]") {
  scripted_answer rolled = page("a", "");
  const std::string more = "<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>";
  const std::size_t length = rolled.text.size() - rolled.text.find("\r\n\r\n") - 4;
  rolled.text.insert(rolled.text.find("<Contents>"), more);
  const std::string old = "Length: " + std::to_string(length);
  rolled.text.replace(rolled.text.find(old), old.size(), "Length: " + std::to_string(length + more.size()));
  const test::scripted_server server({rolled});
  test::captured_stderr said(test::captured_stderr::into::pipe);
  CHECK(listed(server) == names{"s3://b/a"});
  CHECK(said.text() ==
        "millrace: the listing of s3://b/ leaves out all keys that begin with \"b/\", and maybe others: the store has "
        "rolled them up, and was not asked to\n");
}

TEST_CASE("a long listing is no circle", "[s3][list]") {
  std::vector<scripted_answer> pages;
  names expected;
  for (int i = 0; i < 70; ++i) {
    pages.push_back(page(std::to_string(i), i == 69 ? "" : "token-" + std::to_string(i)));
    expected.push_back("s3://b/" + std::to_string(i));
  }
  const test::scripted_server server(pages);
  CHECK(listed(server) == expected);
  REQUIRE(server.requests().size() == 70);
  CHECK_THAT(server.requests()[69], Catch::Matchers::Contains("continuation-token=token-68"));
}

TEST_CASE("a listing of empty pages that never ends is an error; a few empty pages are not", "[s3][list]") {
  // Every page has a token of its own: no repetition gives it away.
  const auto outcome = [](const std::string& script) {
    std::vector<scripted_answer> pages;
    for (std::size_t i = 0; i < script.size(); ++i) {
      const std::string key = script[i] == '-' ? "" : script.substr(i, 1);
      pages.push_back(page(key, i + 1 == script.size() ? "" : "token-" + std::to_string(i)));
    }
    const test::scripted_server server(pages);
    const std::string endpoint = server.url("");
    s3::config where({.region = "us-east-1", .endpoint = endpoint});
    const auto who = std::make_shared<s3::fixed_credentials>(s3::credentials("key", "secret"));
    const auto session = std::make_shared<const s3::session>(std::move(where), who, http::transport_options());
    const auto loop = make_event_loop();
    names out;
    try {
      block_on(*loop, collect(s3::list_objects(session, s3::url::parse("s3://b/train/"), {}, 3), out));
    } catch (const s3::error& e) {
      out.push_back(e.what());
    }
    return out;
  };
  const std::string endless = "s3://b/train/: the listing does not end: more than 3 pages in a row have no key";
  CHECK(outcome("-----------a") == names{endless});
  CHECK(outcome("a---b----c") == names{"s3://b/a", "s3://b/b", endless});
  CHECK(outcome("---a---b---") == names{"s3://b/a", "s3://b/b"});
  CHECK(outcome("a----") == names{"s3://b/a"});  // the last one says that it is
}
