// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Listings in several ranges of keys side by side: the result is that of one page after the other, whatever the keys
// and the store are like.

#include <millrace/s3/ops/list_objects.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/http/engine.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/text/text.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using names = std::vector<std::string>;

namespace {

std::string numbered(const char* format, std::size_t n) {
  char text[64];
  std::snprintf(text, sizeof text, format, n);
  return text;
}

names of_numbers(const char* format, std::size_t n, std::size_t step = 1) {
  names keys;
  for (std::size_t i = 0; i < n; ++i) keys.push_back(numbered(format, i * step));
  std::sort(keys.begin(), keys.end());
  return keys;
}

names of_hex(std::size_t n) {
  names keys;
  rng random(7);
  for (std::size_t i = 0; i < n; ++i) {
    keys.push_back("p/" + numbered("%08zx", random.below(std::size_t(1) << 32)) + "-" + std::to_string(i) + ".jpg");
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

/// The value of a parameter in the head of a request, decoded; empty if it has none.
std::string parameter(const std::string& head, const std::string& name) {
  std::size_t at = head.find("&" + name + "=");
  if (at == std::string::npos) at = head.find("?" + name + "=");
  if (at == std::string::npos) return {};
  at += name.size() + 2;
  return text::uri_decode(head.substr(at, head.find_first_of("& ", at) - at)).value();
}

/// A store that lists keys as they are given, a hundred in each page; a token is the number of the next page's first.
class key_store {
 public:
  explicit key_store(names all) : keys(std::move(all)) {}

  names keys;
  std::size_t per_page = 100;
  /// Where a listing begins that is to start after this key.
  std::function<std::size_t(const key_store&, const std::string&)> after = [](const key_store& s,
                                                                              const std::string& key) {
    return static_cast<std::size_t>(std::upper_bound(s.keys.begin(), s.keys.end(), key) - s.keys.begin());
  };
  std::string refusal;  // of start-after
  bool skips_second = false;  // start-after leaves out one key more
  bool filters = false;       // start-after leaves out the keys up to it by their bytes, wherever they stand
  std::size_t overlap = 0;    // keys of a page that the next one has, too

  test::scripted_answer answer(const std::string& head) const {
    const std::string token = parameter(head, "continuation-token");
    const std::string start = parameter(head, "start-after");
    if (!refusal.empty() && !start.empty()) return answer(400, "Bad Request", refusal);
    if (filters && (!start.empty() || token.find('@') != std::string::npos)) return filtered(token, start);
    const std::size_t begin = !token.empty() ? std::stoul(token) : start.empty() ? 0 : after(*this, start);
    const std::size_t end = std::min(keys.size(), begin + per_page);
    std::string xml = "<ListBucketResult><IsTruncated>" + std::string(end < keys.size() ? "true" : "false") +
                      "</IsTruncated>";
    if (end < keys.size()) {
      xml += "<NextContinuationToken>" + std::to_string(end - overlap) + "</NextContinuationToken>";
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (skips_second && !start.empty() && i == begin + 1) continue;
      xml += "<Contents><Key>" + keys[i] + "</Key><Size>1</Size></Contents>";
    }
    return answer(200, "OK", xml + "</ListBucketResult>");
  }

 private:
  /// A token is that of the list of what is left, and start-after.
  test::scripted_answer filtered(const std::string& token, const std::string& start) const {
    const std::size_t at = token.find('@');
    key_store rest((names()));
    const std::string& after_this = token.empty() ? start : token.substr(at + 1);
    for (const std::string& key : keys) {
      if (key > after_this) rest.keys.push_back(key);
    }
    test::scripted_answer a = rest.answer(token.empty() ? "" : "?continuation-token=" + token.substr(0, at) + " ");
    const std::string end = "</NextContinuationToken>";
    const std::size_t place = a.text.find(end);
    if (place == std::string::npos) return a;
    const std::size_t body = a.text.find("\r\n\r\n") + 4;
    std::string xml = a.text.substr(body);
    xml.insert(place - body, "@" + after_this);
    return answer(200, "OK", xml);
  }
  static test::scripted_answer answer(int status, const char* phrase, const std::string& body) {
    return {"HTTP/1.1 " + std::to_string(status) + ' ' + phrase + "\r\nConnection: close\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body,
            test::scripted_answer::then::fin};
  }
};

task<void> collect(stream<shard> listing, names& out, std::size_t most) {
  while (out.size() < most) {
    std::optional<shard> s = co_await listing.next();
    if (!s) break;
    out.push_back(s->url.substr(std::string_view("s3://b/").size()));
  }
}

s3::client client_of(const std::string& endpoint) {
  s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  o.retry.base = std::chrono::microseconds(10);
  return s3::client(s3::config(o), s3::credentials("test-key", "test-secret"));
}

class listing {
 public:
  explicit listing(const key_store& store, std::size_t most = SIZE_MAX, s3::list_options o = {}) {
    const test::scripted_server server([&store](const std::string& head) { return store.answer(head); });
    test::captured_stderr said(test::captured_stderr::into::pipe);
    const s3::client c = client_of(server.url(""));
    const auto loop = make_event_loop();
    block_on(*loop, collect(c.list("s3://b/p/", o), keys, most));
    log = said.text();
    for (const std::string& head : server.requests()) {
      ++requests;
      if (!parameter(head, "start-after").empty()) ++ranges;
    }
  }
  names keys;
  std::size_t requests = 0;
  std::size_t ranges = 0;  // but for the first
  std::string log;
};

void check_split(const names& keys) {
  const key_store store(keys);
  const listing got(store);
  CHECK(got.keys == keys);
  CHECK(got.log.empty());
  CHECK(got.ranges > 8);
  // Ranges that turn out to be empty, and pages of two ranges, cost requests.
  CHECK(got.requests <= 2 * keys.size() / store.per_page);
}

std::optional<std::string> split(std::string_view first, std::string_view last, const std::optional<std::string>& until,
                                 bool wide = false) {
  return s3::detail::split_point("p/", first, last, until, wide);
}

}  // namespace

TEST_CASE("what is left of a range of keys is split in its middle, as far as its keys tell", "[s3][list]") {
  // Without an end: after the numbers that change, then after all that they may be part of.
  CHECK(split("p/shard-000000.tar", "p/shard-000999.tar", std::nullopt) == "p/shard-:");
  CHECK(split("p/2026/11/25/1", "p/2026/11/26/9", std::nullopt) == "p/2026/11/:");
  CHECK(split("p/00a3", "p/00ff", std::nullopt) == "p/{");
  CHECK(split("p/0013", "p/0099", std::nullopt, true) == "p/{");
  CHECK(split("p/shard-000000.tar", "p/shard-000999.tar", "p/shard-:") == "p/shard-5");
  CHECK(split("p/shard-000000.tar", "p/shard-000999.tar", "p/shard-5") == "p/shard-2");
  CHECK(split("p/shard-000000.tar", "p/shard-000999.tar", "p/shard-1") == "p/shard-05");
  CHECK(split("p/00a3", "p/00ff", "p/{") == "p/8");  // hexadecimal
  CHECK(split("p/aazz", "p/abzz", "p/{") == "p/n");  // of digits and letters
  // Less than a page is left, or nothing tells.
  CHECK(split("p/1000", "p/1400", "p/16") == std::nullopt);
  CHECK(split("p/-", "p/_", std::nullopt) == std::nullopt);
  CHECK(split("p/1", "p/1", std::nullopt) == std::nullopt);
  CHECK(split("p/\xc3\xa4", "p/\xc3\xa6", std::nullopt) == std::nullopt);
}

TEST_CASE("a split lies between what was listed and the end of the range, and has the prefix", "[s3][list]") {
  rng random(3);
  const std::string_view bytes = "009AFZafz-_./:{\xc3\xa4";
  const auto key = [&] {
    std::string k = "p/";
    for (std::size_t n = random.below(8); n > 0; --n) k += bytes[random.below(bytes.size())];
    return k;
  };
  std::size_t splits = 0;
  for (int i = 0; i < 20000; ++i) {
    names three{key(), key(), key()};
    std::sort(three.begin(), three.end());
    const bool open = random.below(4) == 0;
    const std::optional<std::string> until = open ? std::nullopt : std::optional(three[2]);
    const std::optional<std::string> at = split(three[0], three[1], until, random.below(2) == 0);
    if (!at) continue;
    ++splits;
    INFO(three[0] << ' ' << three[1] << ' ' << (open ? "" : three[2]) << ": " << *at);
    REQUIRE(*at > three[1]);
    REQUIRE((open || *at < three[2]));
    REQUIRE(at->substr(0, 2) == "p/");
  }
  CHECK(splits > 2000);
}

TEST_CASE("a long listing in ranges is that of one page after the other", "[s3][list]") {
  check_split(of_numbers("p/shard-%06zu.tar", 10000));
  check_split(of_numbers("p/shard-%08zu.tar", 10000, 17));
  check_split(of_numbers("p/%zu", 10000));  // 1, 10, 100, 11, ...
  check_split(of_hex(10000));
  names two = of_numbers("p/train/%05zu.tar", 6000);
  const names second = of_numbers("p/val/%05zu.tar", 6000);
  two.insert(two.end(), second.begin(), second.end());
  check_split(two);
  names days;
  for (const std::string& day : of_numbers("p/2026/%03zu/", 100)) {
    for (const std::string& one : of_numbers("%03zu.tar", 101)) days.push_back(day + one);
  }
  check_split(days);
}

TEST_CASE("every number of keys is listed in ranges to its last one", "[s3][list]") {
  for (const std::size_t n : {1, 99, 100, 101, 199, 200, 201, 299, 300, 301, 1000, 1001}) {
    INFO(n << " keys");
    const key_store store(of_numbers("p/%05zu", n));
    CHECK(listing(store).keys == store.keys);
  }
}

TEST_CASE("keys that do not tell where to split are listed page after page", "[s3][list]") {
  names keys;
  for (const std::string& n : of_numbers("%04zu", 2000)) keys.push_back("p/-\xc3\xa4" + n);
  for (std::string& key : keys) {
    for (char& c : key) c = c >= '0' && c <= '9' ? static_cast<char>('!' + (c - '0')) : c;  // no digits
    std::replace(key.begin(), key.end(), '&', '~');                                         // XML
  }
  std::sort(keys.begin(), keys.end());
  const listing got{key_store(keys)};
  CHECK(got.keys == keys);
  CHECK(got.ranges == 0);
  CHECK(got.requests == 20);
}

TEST_CASE("a consumer of the first page causes no other request", "[s3][list]") {
  const listing got(key_store(of_numbers("p/%05zu", 5000)), 100);
  CHECK(got.keys.size() == 100);
  CHECK(got.requests == 1);
}

TEST_CASE("a store that lists in an order of its own is listed page after page, whatever it makes of ranges",
          "[s3][list]") {
  names keys = of_numbers("p/%05zu", 3000);
  rng random(5);
  for (std::size_t i = keys.size(); i > 1; --i) std::swap(keys[i - 1], keys[random.below(i)]);
  key_store store(keys);
  const listing got{store};
  CHECK(got.keys == keys);
  CHECK(got.ranges == 0);
  // Keys that pages share are given once, too.
  store.overlap = 7;
  const listing shared{store};
  CHECK(shared.keys == keys);
}

TEST_CASE("where ranges do not join, the rest is listed page after page, which the log says", "[s3][list]") {
  const auto alone = StartsWith("millrace: the listing of s3://b/p/ goes on page after page: ");
  SECTION("start-after is not understood") {
    key_store store(of_numbers("p/a%05zu", 3000));
    store.after = [](const key_store&, const std::string&) { return std::size_t(0); };
    const listing got(store);
    CHECK(got.keys == store.keys);
    CHECK_THAT(got.log, alone);
  }
  SECTION("it is refused") {
    key_store store(of_numbers("p/b%05zu", 3000));
    store.refusal = "<Error><Code>NotImplemented</Code><Message>no start-after here</Message></Error>";
    const listing got(store);
    CHECK(got.keys == store.keys);
    CHECK_THAT(got.log, alone && Contains("no start-after here"));
  }
  SECTION("it leaves out one key, or has one twice") {
    for (const int off : {1, -1}) {
      INFO(off);
      key_store store(of_numbers(off == 1 ? "p/c%05zu" : "p/d%05zu", 3000));
      store.after = [off](const key_store& s, const std::string& key) {
        const auto at = std::upper_bound(s.keys.begin(), s.keys.end(), key) - s.keys.begin();
        return static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(at + off, 0, std::ssize(s.keys)));
      };
      const listing got(store);
      CHECK(got.keys == store.keys);
      CHECK_THAT(got.log, alone);
    }
  }
  SECTION("it ends too early") {
    key_store store(of_numbers("p/e%05zu", 3000));
    store.after = [](const key_store& s, const std::string&) { return s.keys.size(); };
    const listing got(store);
    CHECK(got.keys == store.keys);
    CHECK_THAT(got.log, alone);
  }
  SECTION("keys ascend no more from some key on") {
    key_store store(of_numbers("p/f%05zu", 3000));
    std::swap(store.keys[1750], store.keys[1751]);
    const listing got(store);
    CHECK(got.keys == store.keys);
  }
}

TEST_CASE("keys that ranges cannot show are listed after all, where the order shows that there may be some",
          "[s3][list]") {
  const auto alone = Contains("p/ goes on page after page: keys do not ascend");
  for (const bool early : {false, true}) {
    INFO(early);
    key_store store(of_numbers(early ? "p/k%05zu" : "p/m%05zu", 3000));
    store.filters = true;
    // A store whose order is not that of bytes: some keys come late.
    for (const char* late : {"p/z1", "p/a1", "p/n1", "p/b1"}) store.keys.push_back(late);
    if (early) std::rotate(store.keys.begin() + 1730, store.keys.end() - 4, store.keys.end());
    const listing got(store);
    CHECK(got.keys == store.keys);
    CHECK_THAT(got.log, alone);
    const listing one(store, SIZE_MAX, {.ranges = 1});
    CHECK(one.keys == store.keys);
    CHECK(one.ranges == 0);
    CHECK(one.requests == 31);
    CHECK(one.log.empty());
  }
  const s3::client c = client_of("http://127.0.0.1:1");
  const auto loop = make_event_loop();
  names none;
  CHECK_THROWS_AS(block_on(*loop, collect(c.list("s3://b/p/", {.ranges = 0}), none, 1)), configuration_error);
}

TEST_CASE("keys that pages share are given once, which the log says", "[s3][list]") {
  for (const std::size_t overlap : {1, 3, 99}) {
    key_store store(of_numbers(("p/o" + std::to_string(overlap) + "-%05zu").c_str(), 1000));
    store.overlap = overlap;
    const listing got(store, SIZE_MAX, {.ranges = overlap == 1 ? 16u : 1u});
    CHECK(got.keys == store.keys);
    CHECK_THAT(got.log, Contains("has keys twice, which are given once"));
  }
}

TEST_CASE("a join compares all keys that both sides have seen", "[s3][list]") {
  // A start-after that skips the key after the first one.
  key_store store(of_numbers("p/j%05zu", 3000));
  key_store gap = store;
  store.skips_second = true;
  const listing got(store);
  CHECK(got.keys == gap.keys);
  CHECK_THAT(got.log, Contains("goes on page after page"));
}

TEST_CASE("ranges are listed side by side, sixteen at most", "[s3][list]") {
  s3_server::options o;
  o.list_page = 100;
  o.away.first_byte = std::chrono::milliseconds(20);
  s3_server::background server(o);
  const names keys = of_numbers("p/shard-%06zu.tar", 10000);
  for (const std::string& key : keys) server.objects().put("b", key, std::string_view("x"));
  const s3::client c = client_of(server.endpoint());
  const auto loop = make_event_loop();
  names got;
  block_on(*loop, collect(c.list("s3://b/p/"), got, SIZE_MAX));
  CHECK(got == keys);
  CHECK(server.stats().peak_in_flight > 8);
  CHECK(server.stats().peak_in_flight <= 16);

  // Dropped in the middle, requests in flight and all.
  got.clear();
  bool in_flight = false;
  const auto drop = [&]() -> task<void> {
    stream<shard> listed = c.list("s3://b/p/");
    while (got.size() < 450) {
      std::optional<shard> s = co_await listed.next();
      got.push_back(s->url.substr(std::string_view("s3://b/").size()));
    }
    in_flight = http::engine::of(*loop).transfers() > 0;
  };
  block_on(*loop, drop());
  CHECK(in_flight);
  CHECK(http::engine::of(*loop).transfers() == 0);
  CHECK(loop->frames() == 0);
  CHECK(std::equal(got.begin(), got.end(), keys.begin()));
  // Pages that are refused for the moment are asked for again.
  server.faults().add({.method = "GET", .bucket = "b", .times = 2}, s3_server::fault::refuse(503, "SlowDown"));
  got.clear();
  block_on(*loop, collect(c.list("s3://b/p/"), got, SIZE_MAX));
  CHECK(got == keys);
}
