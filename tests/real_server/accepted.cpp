// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Conformance checks of requests that the server must carry out.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/flow/from_range.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/http/error.hpp>
#include <millrace/s3/endpoint.hpp>
#include <millrace/s3/signer.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/http_storage.hpp>

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
  return names;
}

mill::task<std::vector<mill::shard>> listed(const place& p, std::string prefix) {
  std::vector<mill::shard> found;
  mill::async_generator<mill::shard> list = p.s3.list(p.url(prefix));
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

mill::task<std::string> put_numbered(const place* p, int n) {
  char key[32];
  std::snprintf(key, sizeof key, "long/%06d", n);
  mill::bytes body = mill::bytes::copy(std::to_string(n));
  co_await p->s3.put(p->url(key), std::move(body));
  co_return p->url(key);
}

std::string pattern(std::size_t size) {
  std::string text(size, ' ');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 2654435761u) >> 13);
  return text;
}

/// A presigned URL, put together from the library's own parts.
std::string presign(const place& p, const std::string& key, std::int64_t now, std::int64_t seconds) {
  const mill::s3::endpoint to(p.s3.configuration(), p.bucket);
  const std::string path = to.path(key);
  mill::s3::signing_request q;
  q.host = to.host();
  q.path = path;
  q.region = to.region();
  q.payload = mill::s3::unsigned_payload;
  mill::s3::signer sign;
  const std::string query = sign.presign(q, p.who, now, seconds);
  return std::string(to.scheme()) + "://" + to.host() + path + "?" + query;
}

mill::task<std::string> read_url(std::string url, std::size_t part) {
  const std::shared_ptr<const mill::storage> http = std::make_shared<const mill::http_storage>();
  std::vector<mill::shard> one(1, mill::shard(std::move(url)));
  mill::async_generator<mill::chunk> chunks =
      mill::from_range(std::move(one)) | mill::fetch(http, {.shards = 1, .window = 2 * part, .part = part});
  std::string text;
  while (std::optional<mill::chunk> c = co_await chunks.next()) text += c->data.view();
  co_return text;
}

}  // namespace

mill::task<void> hostile_keys(const place& p) {
  co_await keys_below(p, "keys/");
  co_await keys_below(p, "keys with + and %2F \xc3\xa4/");
}

mill::task<void> long_listing(const place& p) {
  const int count = 2500;  // two and a half pages
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  auto store = [at = &p](int n) { return put_numbered(at, n); };
  mill::async_generator<std::string> done =
      mill::from_range(std::move(numbers)) | mill::map_concurrent(store, {.limit = 32});
  std::vector<std::string> stored;
  while (std::optional<std::string> url = co_await done.next()) stored.push_back(std::move(*url));
  const std::vector<mill::shard> found = co_await listed(p, "long/");
  expect(found.size() == stored.size(), "2500 objects, but there were " + std::to_string(found.size()));
  for (std::size_t i = 0; i < found.size(); ++i)
    expect(found[i].url == stored[i], "the listing goes on at " + stored[i]);
  expect((co_await listed(p, "long/0024")).size() == 100, "a prefix inside a page gives its own objects");
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
    const auto s = std::make_shared<const mill::s3::session>(
        p.s3.configuration(), std::make_shared<mill::s3::fixed_credentials>(p.who), mill::http::transport_options());
    const std::int64_t true_now = static_cast<std::int64_t>(std::time(nullptr));
    s->learn_time(true_now + error_of_clock);
    const mill::s3::object_part part =
        co_await mill::s3::get_object_range(s, p.bucket, "skew", 0, 100, std::string(), slabs);
    expect(part.data.view() == "body", "the object, with a clock that is two hours off");
    const std::int64_t off = s->now() - static_cast<std::int64_t>(std::time(nullptr));
    expect(off >= -5 && off <= 5, "the server's clock is learnt, but it is off by " + std::to_string(off) + " s");
  }
}

mill::task<void> presigned(const place& p) {
  const std::string body = pattern(300'001);
  const std::string key = "presigned/a b+c%20\xc3\xa4.tar";
  co_await p.s3.put(p.url(key), mill::bytes::copy(body));
  const auto now = static_cast<std::int64_t>(std::time(nullptr));
  const std::string url = presign(p, key, now, 600);
  expect((co_await read_url(url, mill::MiB)) == body, "the object behind a presigned URL, in one part");
  expect((co_await read_url(url, 100'000)) == body, "the object behind a presigned URL, in four parts");

  std::string forged = url;
  forged.back() = forged.back() == '0' ? '1' : '0';
  for (const std::string& bad : {forged, presign(p, key, now - 1200, 600)}) {
    int status = 0;
    std::string message;
    try {
      co_await read_url(bad, mill::MiB);
    } catch (const mill::http::error& e) {
      status = e.status();
      message = e.what();
    }
    expect(status == 403, "a forged or expired URL is refused with 403, not " + std::to_string(status));
    expect(message.find("X-Amz") == std::string::npos, "the message does not show the query");
  }
  // And one that another tool has made, where the driver of the tests names one.
  if (const char* other = std::getenv("MILLRACE_TEST_PRESIGNED_URL")) {
    const std::string text = co_await read_url(other, 64 * mill::KiB);
    expect(text == "made by another tool", "the object behind another tool's URL");
  }
}

}  // namespace real_server
