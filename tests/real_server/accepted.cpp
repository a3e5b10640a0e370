// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Conformance checks of requests that the server must carry out.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/s3/ops/list_objects.hpp>
#include <millrace/text/text.hpp>

#include "tests/real_server/checks.hpp"

namespace real_server {

namespace {

namespace mill = millrace;

/// Keys that go wrong when a client encodes, decodes or normalises once too often or not often enough.
std::vector<std::string> difficult_names() {
  std::vector<std::string> names = {
      "plain",
      "a b",
      " leading and trailing ",
      "a+b",
      "a%b",
      "a%20b",
      "a%2Fb",
      "100%",
      "%",
      "a&b=c",
      "a=b",
      "a?b",
      "a#b",
      "a;b,c:d@e",
      "a!b*c'd(e)f",
      "a$b",
      "quote\"d",
      "back\\slash",
      "<tag>&amp;",
      "[a]{b}|^`~",
      "tilde~under_dash-dot.",
      "s3://bucket/key",
      "http://host/path?query#fragment",
      "a//b",
      "/leading",
      "//two leading",
      "trailing/",
      "a///",
      "./a",
      "../a",
      "a/./b",
      "a/../b",
      "a/..",
      ".",
      "..",
      "...",
      "\xc3\xa4\xc3\xb6\xc3\xbc",              // umlauts
      "e\xcc\x81 \xc3\xa9",                    // the same letter, decomposed and composed
      "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e",  // three-byte characters
      "\xf0\x9f\x90\x8e.jpg",                  // four-byte characters
      "\xef\xbf\xbd\xe2\x80\xa8\xe2\x80\xae",  // replacement, line separator, right-to-left override
      "tab\there",
      "line\nfeed",
      "carriage\rreturn",
      "\x01\x02\x1f",
      "delete\x7f",
  };
  names.push_back(std::string(900, 'k'));
  std::string encoded_long;  // three times as long when encoded
  for (int i = 0; i < 400; ++i) encoded_long += "\xc3\xa4";
  names.push_back(encoded_long);
  // A server that is built on a router which takes no line feeds in paths (moto).
  if (std::getenv("MILLRACE_TEST_NO_LINE_FEEDS") != nullptr) {
    std::erase_if(names, [](const std::string& name) { return name.find('\n') != std::string::npos; });
  }
  return names;
}

mill::task<std::vector<mill::shard>> listed(const place& p, std::string prefix) {
  std::vector<mill::shard> found;
  mill::stream<mill::shard> list = p.s3.list(p.url(prefix));
  while (std::optional<mill::shard> s = co_await list.next()) found.push_back(std::move(*s));
  co_return found;
}

mill::task<void> keys_below(const place& p, std::string prefix) {
  mill::slab_pool slabs(mill::MiB);
  std::vector<std::string> expected;
  for (const std::string& name : difficult_names()) {
    const std::string key = prefix + name;
    const std::string body = "body of " + key;
    const std::string etag = co_await p.s3.put(p.url(key), mill::bytes::copy(body), "text/plain");
    const mill::s3::object_info info = co_await p.s3.head(p.url(key));
    expect(info.size == body.size() && info.etag == etag, "HEAD tells size and ETag of " + key);
    const mill::s3::object_part part = co_await p.s3.get(p.url(key), 0, mill::MiB, etag, slabs);
    expect(part.data.view() == body, "GET gives the body of " + key);
    expected.push_back(p.url(key));
  }
  std::sort(expected.begin(), expected.end());
  std::vector<std::string> found;
  for (const mill::shard& s : co_await listed(p, prefix)) {
    found.push_back(s.url);
    expect(s.size == 8 + s.url.size() - p.url("").size(), "the listing tells the size of " + s.url);
  }
  expect(std::is_sorted(found.begin(), found.end()), "the listing is in the order of the bytes");
  for (const std::string& url : expected) {
    expect(std::binary_search(found.begin(), found.end(), url), "the listing has " + url);
  }
  expect(found == expected, "the listing has nothing else");
}

/// One page of at most `most` keys.
mill::task<mill::s3::list_page> page_of(const place& p, std::string prefix, int most, std::string token) {
  mill::s3::operation op("GET", p.bucket, std::string());
  op.query = "list-type=2&encoding-type=url&max-keys=" + std::to_string(most);
  mill::text::append_query_parameter(op.query, "prefix", prefix);
  if (!token.empty()) mill::text::append_query_parameter(op.query, "continuation-token", token);
  const auto s = p.session();
  co_return co_await mill::s3::detail::list_once(*s, op);
}

mill::task<std::string> put_numbered(const place* p, int n) {
  char key[32];
  std::snprintf(key, sizeof key, "long/%06d", n);
  mill::bytes body = mill::bytes::copy(std::to_string(n));
  co_await p->s3.put(p->url(key), std::move(body));
  co_return p->url(key);
}

}  // namespace

mill::task<void> hostile_keys(const place& p) {
  co_await keys_below(p, "keys/");
  co_await keys_below(p, "keys with + and %2F \xc3\xa4/");
}

mill::task<void> long_listing(const place& p) {
  const int count = 10000;  // ten pages
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  auto store = [at = &p](int n) { return put_numbered(at, n); };
  mill::stream<std::string> done =
      mill::from_range(std::move(numbers)) | mill::map_concurrent(store, {.limit = 32});
  std::vector<std::string> stored;
  while (std::optional<std::string> url = co_await done.next()) stored.push_back(std::move(*url));
  const std::vector<mill::shard> found = co_await listed(p, "long/");
  expect(found.size() == stored.size(), "10000 objects, but there were " + std::to_string(found.size()));
  for (std::size_t i = 0; i < found.size(); ++i)
    expect(found[i].url == stored[i], "the listing goes on at " + stored[i]);
  expect((co_await listed(p, "long/0024")).size() == 100, "a prefix inside a page gives its own objects");
  std::string token;
  std::size_t at = 0;
  do {
    const mill::s3::list_page page = co_await page_of(p, "long/", 777, token);
    for (const mill::s3::listed_object& o : page.objects) {
      expect(p.url(o.key) == stored.at(at), "short pages go on at " + stored.at(at));
      ++at;
    }
    token = page.truncated ? page.next_continuation_token : std::string();
  } while (!token.empty());
  expect(at == stored.size(), "short pages give 10000 objects, but there were " + std::to_string(at));
}

mill::task<void> listing_rules(const place& p) {
  co_await put(p, "rules/a", "1");
  co_await put(p, "rules/marker/", "");
  co_await put(p, "rules/empty", "");
  const std::vector<mill::shard> found = co_await listed(p, "rules/");
  expect(found.size() == 2 && found[0].url == p.url("rules/a") && found[1].url == p.url("rules/empty"),
         "a folder marker is no object, an empty object is one");
  const mill::s3::object_info info = co_await p.s3.head(found[0].url);
  expect(found[0].etag == info.etag && !info.etag.empty(), "the ETag of the listing is that of the object");
  co_await p.s3.create_bucket("s3://" + p.bucket);  // ours already
  try {
    co_await p.s3.remove_bucket("s3://" + p.bucket);
    expect(false, "a bucket with objects is not removed");
  } catch (const mill::s3::error& e) {
    expect(e.code() == "BucketNotEmpty", "the code of a bucket that is not empty");
  }
  const std::string other = "s3://" + p.bucket + "-removed";
  co_await p.s3.create_bucket(other);
  co_await p.s3.put(other + "/a", mill::bytes::copy("a"));
  co_await p.s3.remove(other + "/a");
  co_await p.s3.remove_bucket(other);
  co_await p.s3.remove_bucket(other);  // is not there
}

mill::task<void> ranges(const place& p) {
  const std::string body = pattern(3 * mill::MiB + 17);
  const std::string url = p.url("ranges/object");
  co_await p.s3.put(url, mill::bytes::copy(body));
  mill::slab_pool slabs(4 * mill::MiB);
  const std::size_t end = body.size();
  const std::size_t cases[][2] = {{0, 1},
                                  {0, end},
                                  {1, 1},
                                  {511, 513},
                                  {mill::MiB, mill::MiB},
                                  {end - 1, 1},
                                  {end - 1, 1000},
                                  {end / 2, 4 * mill::MiB}};
  for (const auto& [offset, length] : cases) {
    const mill::s3::object_part part = co_await p.s3.get(url, offset, length, std::string(), slabs);
    expect(part.object.size == end, "every part tells the size of the object");
    expect(part.data.view() == std::string_view(body).substr(offset, length),
           "the part at " + std::to_string(offset) + " of length " + std::to_string(length));
  }
  const mill::s3::error beyond = co_await refusal(p.s3.get(url, end, 1, std::string(), slabs));
  expect_refused(beyond, 416, "InvalidRange");
  co_await put(p, "ranges/empty", "");
  const mill::s3::object_part none = co_await p.s3.get(p.url("ranges/empty"), 0, 100, std::string(), slabs);
  expect(none.data.empty() && none.object.size == 0, "an empty object is read as one");
}

mill::task<void> clock_skew(const place& p) {
  co_await put(p, "skew", "body");
  mill::slab_pool slabs(mill::MiB);
  for (const std::int64_t error_of_clock : {-7200, 7200}) {
    // A session whose idea of the server's clock is as wrong as that of a machine with a wrong clock.
    const auto s = p.session();
    const std::int64_t true_now = static_cast<std::int64_t>(std::time(nullptr));
    s->learn_time(true_now + error_of_clock);
    const mill::s3::object_part part =
        co_await mill::s3::get_object_range(s, p.bucket, "skew", 0, 100, std::string(), slabs);
    expect(part.data.view() == "body", "the object, with a clock that is two hours off");
    const std::int64_t off = s->now() - static_cast<std::int64_t>(std::time(nullptr));
    expect(off >= -5 && off <= 5, "the server's clock is learnt, but it is off by " + std::to_string(off) + " s");
  }
}

}  // namespace real_server
