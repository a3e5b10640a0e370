// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/sign/signer.hpp>

#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <string.h>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

namespace s3 = millrace::s3;
using Catch::Matchers::Contains;

const s3::credentials keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
constexpr std::int64_t noon = 1767268800;  // 2026-01-01 12:00 UTC

s3::signing_request get(std::span<const s3::header_field> headers = {}) {
  s3::signing_request r;
  r.host = "mybucket.s3.eu-west-1.amazonaws.com";
  r.path = "/train/shard-000000.tar";
  r.region = "eu-west-1";
  r.headers = headers;
  return r;
}

std::string signature(s3::signer& signer, const s3::signing_request& r, const s3::credentials& who = keys,
                      std::int64_t now = noon) {
  return std::string(signer.sign(r, who, now)["authorization"]);
}

}  // namespace

TEST_CASE("anonymous requests get no header at all", "[s3][signer]") {
  s3::signer signer;
  CHECK(signer.sign(get(), s3::credentials::anonymous(), noon).empty());
  CHECK_THROWS_AS(signer.presign(get(), s3::credentials::anonymous(), noon, 60), millrace::configuration_error);
  CHECK(signer.keys_derived() == 0);
}

TEST_CASE("signing keys are derived once per day, secret, region and service", "[s3][signer]") {
  s3::signer signer;
  const std::string first = signature(signer, get());
  for (int i = 0; i < 3; ++i) CHECK(signature(signer, get()) == first);
  CHECK(signer.keys_derived() == 1);
  const s3::credentials same_text("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "token");
  signature(signer, get(), same_text);
  CHECK(signer.keys_derived() == 1);

  s3::signing_request west = get();
  west.region = "us-west-2";
  CHECK(signature(signer, west) != first);
  CHECK(signer.keys_derived() == 2);
  CHECK(signature(signer, get()) == first);
  CHECK(signer.keys_derived() == 2);

  signature(signer, get(), keys, noon + 12 * 3600 - 1);
  CHECK(signer.keys_derived() == 2);
  signature(signer, get(), keys, noon + 12 * 3600);  // midnight drops both
  CHECK(signer.keys_derived() == 3);
  CHECK(signature(signer, get()) == first);
  CHECK(signer.keys_derived() == 4);

  const s3::credentials rotated("AKIAIOSFODNN7EXAMPLE", "another");
  CHECK(signature(signer, get(), rotated) != first);
  CHECK(signer.keys_derived() == 5);
  CHECK(signature(signer, get()) == first);
  CHECK(signer.keys_derived() == 6);
}

TEST_CASE("more regions than the cache holds still sign alike", "[s3][signer]") {
  s3::signer one;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 20; ++i) {
      const std::string region = "region-" + std::to_string(i);
      s3::signing_request r = get();
      r.region = region;
      s3::signer fresh;
      CHECK(signature(one, r) == signature(fresh, r));
    }
  }
}

TEST_CASE("a moved signer goes on signing", "[s3][signer]") {
  s3::signer a;
  const std::string first = signature(a, get());
  s3::signer b(std::move(a));
  CHECK(signature(b, get()) == first);
  s3::signer c;
  c = std::move(b);
  CHECK(signature(c, get()) == first);
  CHECK(c.keys_derived() == 1);
}

TEST_CASE("headers of proxies are sent unsigned, everything else is signed", "[s3][signer]") {
  s3::signer signer;
  const s3::header_field headers[] = {{"User-Agent", "millrace"},
                                      {"Range", "bytes=0-1"},
                                      {"Connection", "close"},
                                      {"X-Amzn-Trace-Id", "x"},
                                      {"If-Match", "\"etag\""},
                                      {"Expect", "100-continue"},
                                      {"Sec-WebSocket-Key", "x"},
                                      {"x-amz-meta-a", "1"},
                                      {"TE", "trailers"},
                                      {"Keep-Alive", "max=9"},
                                      {"Proxy-Authenticate", "x"},
                                      {"Proxy-Authorization", "x"},
                                      {"Trailer", "x"},
                                      {"Transfer-Encoding", "chunked"},
                                      {"Upgrade", "x"}};
  const std::string text = signature(signer, get(headers));
  CHECK_THAT(text, Contains("SignedHeaders=host;if-match;range;x-amz-content-sha256;x-amz-date;x-amz-meta-a,"));
}

TEST_CASE("blanks and tabs in a value are signed as one blank", "[s3][signer]") {
  s3::signer signer;
  const auto with = [&](std::string_view value) {
    const s3::header_field headers[] = {{"x-amz-meta-a", value}};
    return signature(signer, get(headers));
  };
  const std::string plain = with("a b");
  for (const char* value : {"a\tb", "a  b", "a \t b", " a b", "a b ", "\ta b", "a b\t"}) {
    INFO('"' << value << '"');
    CHECK(with(value) == plain);
  }
  CHECK(with("ab") != plain);
}

TEST_CASE("repeated headers are joined in their order", "[s3][signer]") {
  s3::signer signer;
  const s3::header_field headers[] = {{"X-B", "2"}, {"x-a", " 0 "}, {"x-b", "1"}, {"X-a", ""}};
  signature(signer, get(headers));
  CHECK_THAT(signer.canonical_request(), Contains("\nx-a:0,\nx-amz-content-sha256:"));
  CHECK_THAT(signer.canonical_request(), Contains("\nx-b:2,1\n"));
  CHECK_THAT(signer.canonical_request(), Contains("\nhost;x-a;x-amz-content-sha256;x-amz-date;x-b\n"));
}

TEST_CASE("what the signer writes itself is refused from its caller", "[s3][signer]") {
  s3::signer signer;
  for (const char* name : {"X-Amz-Date", "x-amz-content-sha256", "Authorization", "X-AMZ-Security-Token", "Host"}) {
    INFO(name);
    const s3::header_field headers[] = {{name, "x"}};
    CHECK_THROWS_WITH(signer.sign(get(headers), keys, noon), Contains("written by the signer"));
    CHECK_THROWS_AS(signer.presign(get(headers), keys, noon, 60), millrace::configuration_error);
    CHECK_THROWS_AS(signer.sign(get(headers), s3::credentials(), noon), millrace::configuration_error);
  }
  for (const char* query : {"X-Amz-Signature=1", "a=1&x-amz-date=2", "X-AMZ-Anything"}) {
    INFO(query);
    s3::signing_request r = get();
    r.query = query;
    CHECK_THROWS_WITH(signer.sign(r, keys, noon), Contains("X-Amz-*"));
  }
}

TEST_CASE("a request and what signs it own what they were given", "[s3][signer]") {
  const auto made = [] {
    s3::signing_request r;
    r.host = std::string("mybucket.s3.eu-west-1.amazonaws") + ".com";
    r.path = std::string("/train/shard-000000") + ".tar";
    r.region = std::string("eu-west") + "-1";
    r.payload = std::string(s3::unsigned_payload) + "";
    const std::string value(40, 'v');
    const std::vector<s3::header_field> headers{{"x-amz-meta-a", value}};
    r.headers = headers;
    return r;
  };
  const std::string value(40, 'v');
  const s3::header_field header{"x-amz-meta-a", value};
  s3::signing_request same = get(std::span(&header, 1));
  same.payload = s3::unsigned_payload;
  s3::signer one, other;
  const s3::signed_headers fields = one.sign(made(), keys, noon);
  CHECK(std::string(fields["authorization"]) == signature(other, same));
  CHECK(fields["x-amz-content-sha256"] == s3::unsigned_payload);
}

TEST_CASE("line ends and other control characters never reach a request", "[s3][signer]") {
  s3::signer signer;
  for (const std::string& value :
       {std::string("a\r\nx: y"), std::string("a\nb"), std::string("a\0b", 3), std::string("a\x7f")}) {
    const s3::header_field headers[] = {{"x-amz-meta-a", value}};
    CHECK_THROWS_WITH(signer.sign(get(headers), keys, noon), Contains("x-amz-meta-a") && !Contains(value));
    s3::signing_request r = get();
    r.host = value;
    CHECK_THROWS_AS(signer.sign(r, keys, noon), millrace::configuration_error);
    r = get();
    r.region = value;
    CHECK_THROWS_AS(signer.sign(r, keys, noon), millrace::configuration_error);
    r = get();
    r.payload = value;
    CHECK_THROWS_AS(signer.sign(r, keys, noon), millrace::configuration_error);
    r = get();
    const std::string path = "/" + value;
    r.path = path;
    CHECK_THROWS_AS(signer.sign(r, keys, noon), millrace::configuration_error);
    r = get();
    r.query = value;
    CHECK_THROWS_AS(signer.sign(r, keys, noon), millrace::configuration_error);
  }
  for (const char* name : {"", "a b", "a:b", "a\n", "\xc3\xa9"}) {
    const s3::header_field headers[] = {{name, "x"}};
    CHECK_THROWS_WITH(signer.sign(get(headers), keys, noon), Contains("not a header name"));
  }
}

TEST_CASE("a request that cannot be sent as signed is refused", "[s3][signer]") {
  s3::signer signer;
  for (const char* path : {"", "key", "/a b", "/a+b", "/a%2fb", "/%41", "/a?b", "/a#b", "/%", "/%4", "/\xc3\xa9"}) {
    INFO(path);
    s3::signing_request r = get();
    r.path = path;
    CHECK_THROWS_WITH(signer.sign(r, keys, noon), Contains("path"));
  }
  s3::signing_request r = get();
  r.method = "get";
  CHECK_THROWS_WITH(signer.sign(r, keys, noon), Contains("upper case"));
  r = get();
  for (const char* host : {"", "MyBucket.example", "a/b", "user@host", "a b", "\xc3\xa9.example"}) {
    r.host = host;
    CHECK_THROWS_WITH(signer.sign(r, keys, noon), Contains("host"));
  }
  r = get();
  for (const char* query : {"a=%", "a=%2", "a=b+c", "a=1#x", "a=%zz"}) {
    r.query = query;
    CHECK_THROWS_WITH(signer.sign(r, keys, noon), Contains("query"));
  }
  CHECK_THROWS_AS(signer.sign(get(), keys, -1), millrace::configuration_error);
  // Nothing of the failures above is left behind.
  s3::signer fresh;
  CHECK(signature(signer, get()) == signature(fresh, get()));
}

TEST_CASE("what was found good once does not make the next request good", "[s3][signer]") {
  s3::signer signer;
  const std::string first = signature(signer, get());
  struct part {
    const char* what;
    std::string s3::signing_request::*member;
  };
  for (const part p :
       {part{"host", &s3::signing_request::host}, part{"region", &s3::signing_request::region},
        part{"service", &s3::signing_request::service}, part{"payload hash", &s3::signing_request::payload}}) {
    for (const char* bad : {"", "a/b", "a b"}) {
      INFO(p.what << " \"" << bad << "\"");
      s3::signer fresh;
      s3::signing_request r = get();
      r.*p.member = bad;
      CHECK_THROWS_WITH(signer.sign(r, keys, noon), Contains(p.what));
      CHECK_THROWS_WITH(fresh.sign(r, keys, noon), Contains(p.what));
      CHECK_THROWS_WITH(signer.sign(r, keys, noon), Contains(p.what));  // the refused one is not kept
      CHECK(signature(signer, get()) == first);
    }
    s3::signing_request r = get();
    r.*p.member = "other";
    const std::string other = signature(signer, r);
    CHECK(other != first);
    CHECK(signature(signer, get()) == first);
    CHECK(signature(signer, r) == other);
  }
}

TEST_CASE("the query is signed in its canonical form", "[s3][signer]") {
  s3::signer signer;
  s3::signing_request r = get();
  r.query = "b=2&a=%2f&a=/&a-=1&a&&c=%7e";
  signature(signer, r);
  CHECK_THAT(signer.canonical_request(), Contains("\na=&a=%2F&a=%2F&a-=1&b=2&c=~\n"));
}

TEST_CASE("presigned URLs live from a second to a week", "[s3][signer]") {
  s3::signer signer;
  s3::signing_request r = get();
  r.payload = s3::unsigned_payload;
  CHECK_THAT(signer.presign(r, keys, noon, 604800), Contains("X-Amz-Expires=604800&"));
  CHECK_THAT(signer.presign(r, keys, noon, 1), Contains("X-Amz-Expires=1&"));
  for (std::int64_t bad : {std::int64_t(0), std::int64_t(-5), std::int64_t(604801)}) {
    CHECK_THROWS_WITH(signer.presign(r, keys, noon, bad), Contains("7 days"));
  }
}

TEST_CASE("no message of the signer contains a secret", "[s3][signer]") {
  s3::signer signer;
  const s3::credentials who("AKID", "hunter2secret", "hunter2token");
  const s3::header_field headers[] = {{"Authorization", "hunter2"}};
  try {
    signer.sign(get(headers), who, noon);
    FAIL("signed");
  } catch (const millrace::error& e) {
    CHECK(std::string(e.what()).find("hunter2") == std::string::npos);
  }
  signer.sign(get(), who, noon);
  CHECK(signer.canonical_request().find("hunter2secret") == std::string::npos);
  CHECK(signer.string_to_sign().find("hunter2") == std::string::npos);
}

TEST_CASE("signing keys are overwritten when their day, their secret or the cache ends", "[s3][signer]") {
  using cache = s3::detail::signing_key_cache;
  alignas(cache) unsigned char memory[sizeof(cache)] = {};
  const auto holds = [&](const s3::detail::digest& key) {
    return ::memmem(memory, sizeof memory, key.data(), key.size()) != nullptr;
  };
  s3::detail::hmac_sha256 hmac;
  const s3::credentials who("AKID", "a-secret");
  const s3::credentials other("AKID", "another-secret");
  auto* const kept = new (memory) cache;
  const s3::detail::digest first = kept->find(hmac, who, "20260101", "eu-west-1", "s3");
  const s3::detail::digest second = kept->find(hmac, who, "20260101", "us-west-2", "s3");
  CHECK((holds(first) && holds(second)));
  const s3::detail::digest next_day = kept->find(hmac, who, "20260102", "eu-west-1", "s3");
  CHECK((holds(next_day) && !holds(first) && !holds(second)));
  const s3::detail::digest of_other = kept->find(hmac, other, "20260102", "eu-west-1", "s3");
  CHECK((holds(of_other) && !holds(next_day)));
  kept->~cache();
  CHECK_FALSE(holds(of_other));
}
