// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Conformance checks of the ways to name an object: buckets in host names, URLs that carry their signature.

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/presign.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/http_storage.hpp>

#include "tests/real_server/checks.hpp"

namespace real_server {

namespace mill = millrace;

namespace {

mill::task<std::string> read_url(std::string url, std::size_t part) {
  const std::shared_ptr<const mill::storage> http = std::make_shared<const mill::http_storage>();
  std::vector<mill::shard> one(1, mill::shard(std::move(url)));
  mill::stream<mill::chunk> chunks =
      mill::from_range(std::move(one)) | mill::fetch(http, {.shards = 1, .window = 2 * part, .part = part});
  std::string text;
  while (std::optional<mill::chunk> c = co_await chunks.next()) text += c->data.view();
  co_return text;
}

}  // namespace

mill::task<void> presigned(const place& p) {
  const std::string body = pattern(300'001);
  const std::string key = "presigned/a b+c%20\xc3\xa4.tar";
  co_await p.s3.put(p.url(key), mill::bytes::copy(body));
  const std::string url = co_await p.s3.presign(p.url(key), 600);
  expect((co_await read_url(url, mill::MiB)) == body, "the object of a presigned URL, in one part");
  expect((co_await read_url(url, 100'000)) == body, "the object of a presigned URL, in four parts");

  // A signer whose clock says that it is twenty minutes ago: what it signs for ten is over.
  const auto earlier = p.session();
  earlier->learn_time(static_cast<std::int64_t>(std::time(nullptr)) - 1200);
  const std::string expired = co_await mill::s3::presign(earlier, p.bucket, key, "GET", 600);
  const std::string lasting = co_await mill::s3::presign(earlier, p.bucket, key, "GET", 3600);
  expect((co_await read_url(lasting, mill::MiB)) == body, "the object of a URL that is not over yet");

  std::string forged = url;
  forged.back() = forged.back() == '0' ? '1' : '0';
  const std::string to_write = co_await p.s3.presign(p.url(key), 600, "PUT");
  const char* const over = std::getenv("MILLRACE_TEST_EXPIRED_STATUS");  // what this server has for a URL that is over
  const int expired_status = over == nullptr ? 403 : std::atoi(over);
  struct refused {
    std::string url;
    int status;
  };
  const refused urls[] = {{forged, 403}, {expired, expired_status}, {to_write, 403}};
  for (const auto& [bad, expected] : urls) {
    int status = 0;
    std::string message;
    try {
      co_await read_url(bad, mill::MiB);
    } catch (const mill::http::error& e) {
      status = e.status();
      message = e.what();
    }
    expect(status == expected, "a forged, expired or other URL is refused with " + std::to_string(expected) + ", not " +
                                   std::to_string(status));
    expect(message.find("X-Amz") == std::string::npos, "the message does not show the query");
  }

  mill::http::request write("PUT", to_write);
  write.body = mill::bytes::copy("written by URL");
  const auto plain = std::make_shared<const mill::http::transport_options>();
  const mill::http::response answer = co_await mill::http::send(std::move(write), plain, 64 * mill::KiB);
  expect(answer.head.status == 200, "a presigned PUT stores");
  const std::string again = co_await p.s3.presign(p.url(key), 600);
  expect((co_await read_url(again, mill::MiB)) == "written by URL", "what a presigned PUT has stored");

  // And one that another tool has made, where the driver of the tests names one.
  if (const char* other = std::getenv("MILLRACE_TEST_PRESIGNED_URL")) {
    const std::string text = co_await read_url(other, 64 * mill::KiB);
    expect(text == "made by another tool", "the object of another tool's URL");
  }
}

mill::task<void> virtual_hosts(const place& p) {
  mill::s3::config c = p.s3.configuration();
  const std::size_t address = c.endpoint_url.find("127.0.0.1");
  expect(address != std::string::npos, "an endpoint on 127.0.0.1");
  c.endpoint_url.replace(address, 9, "s3.localhost");
  c.style = mill::s3::addressing::virtual_hosted;
  const mill::s3::client s3(c, p.who);
  const std::string bucket = "s3://" + p.bucket + "-by-name";
  expect(mill::s3::endpoint(c, bucket.substr(5)).host().compare(0, bucket.size() - 5, bucket, 5) == 0,
         "the bucket is a part of the host name");
  co_await s3.create_bucket(bucket);
  mill::slab_pool slabs(mill::MiB);
  std::vector<std::string> stored;
  for (const char* key : {"+", "/", "a b/%2F?x=y&z#", "dir//../k", "\xc3\xa4"}) {
    const std::string url = bucket + "/" + key;
    co_await s3.put(url, mill::bytes::copy(url));
    const mill::s3::object_part part = co_await s3.get(url, 0, mill::MiB, std::string(), slabs);
    expect(part.data.view() == url, "the object " + url);
    const std::string signed_url = co_await s3.presign(url, 600);
    expect((co_await read_url(signed_url, mill::MiB)) == url, "the object of the presigned URL of " + url);
    stored.push_back(url);
  }
  mill::stream<mill::shard> list = s3.list(bucket + "/");
  std::size_t found = 0;
  while (std::optional<mill::shard> s = co_await list.next()) {
    expect(found < stored.size() && s->url == stored[found], "the listing has " + s->url);
    ++found;
  }
  expect(found == stored.size(), "the listing has every object");
  const mill::s3::error missing = co_await refusal(s3.head(bucket + "-absent/key"));
  expect(missing.status() == 404, "a bucket that is not there");
  const mill::s3::error none = co_await refusal(s3.get(bucket + "/none", 0, 1, std::string(), slabs));
  expect_refused(none, 404, "NoSuchKey");
}

}  // namespace real_server
