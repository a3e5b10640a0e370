// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Conformance checks of requests that the server must refuse, and of the errors that come of it.

#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "tests/real_server/checks.hpp"

namespace real_server {

namespace mill = millrace;

namespace {

mill::task<std::optional<mill::shard>> first_of(const mill::s3::client& s3, std::string prefix) {
  mill::stream<mill::shard> list = s3.list(prefix);
  co_return co_await list.next();
}

/// Reads the object in parts of 64 KiB and replaces it after the first.
mill::task<void> read_and_replace(const place& p, std::string url, std::string body) {
  auto chunks = p.s3.list(url) | mill::fetch(p.s3, {.shards = 1, .window = 128 * mill::KiB, .part = 64 * mill::KiB});
  std::optional<mill::chunk> c = co_await chunks.next();
  expect(c.has_value() && c->data.view() == std::string_view(body).substr(0, 64 * mill::KiB), "the first part");
  body[0] = static_cast<char>(body[0] + 1);
  co_await p.s3.put(url, mill::bytes::copy(body));
  while (c) c = co_await chunks.next();
}

void expect_silent(const std::string& message, const mill::s3::credentials& who) {
  expect(message.find(std::string(who.secret_access_key())) == std::string::npos, "the message shows no secret");
  expect(message.find("Signature=") == std::string::npos && message.find("AWS4-HMAC") == std::string::npos,
         "the message shows no signature");
}

}  // namespace

mill::task<void> changed_objects(const place& p) {
  mill::slab_pool slabs(mill::MiB);
  co_await put(p, "changed/small", "first version");
  const mill::s3::object_info before = co_await p.s3.head(p.url("changed/small"));
  const mill::s3::object_part same = co_await p.s3.get(p.url("changed/small"), 0, 100, before.etag, slabs);
  expect(same.data.view() == "first version", "If-Match with the present ETag");
  co_await put(p, "changed/small", "second version");
  const mill::s3::object_info after = co_await p.s3.head(p.url("changed/small"));
  std::string stale;
  try {
    co_await p.s3.get(p.url("changed/small"), 0, 100, before.etag, slabs);
  } catch (const mill::changed_error& e) {
    stale = e.what();
  }
  expect(stale.find(before.etag) != std::string::npos && stale.find(after.etag) != std::string::npos,
         "a changed_error with both ETags, but it was: " + stale);

  const std::string url = p.url("changed/large");
  const std::string body(2 * mill::MiB, 'x');
  co_await p.s3.put(url, mill::bytes::copy(body));
  std::string object;
  bool later_part = false;
  try {
    co_await read_and_replace(p, url, body);
  } catch (const mill::changed_error& e) {
    object = e.object();
    later_part = e.offset().value_or(0) > 0;
  }
  expect(object == url && later_part, "a changed_error that names the object and the part");
}

mill::task<void> wrong_keys(const place& p) {
  co_await put(p, "secret", "body");
  const mill::s3::credentials bad_secret(p.who.access_key_id(), std::string(p.who.secret_access_key()) + "x");
  const mill::s3::client with_bad_secret(p.s3.configuration(), bad_secret);
  mill::slab_pool slabs(mill::MiB);
  const std::string url = p.url("secret");
  std::vector<mill::s3::error> refused;
  refused.push_back(co_await refusal(with_bad_secret.get(url, 0, 10, std::string(), slabs)));
  refused.push_back(co_await refusal(with_bad_secret.put(url, mill::bytes::copy("other"))));
  refused.push_back(co_await refusal(first_of(with_bad_secret, p.url(""))));
  for (const mill::s3::error& e : refused) {
    expect_refused(e, 403, "SignatureDoesNotMatch");
    expect_silent(e.what(), bad_secret);
    expect_silent(e.what(), p.who);
  }
  expect(refused[0].object() == url, "the error names the object");
  const mill::s3::error head = co_await refusal(with_bad_secret.head(url));
  expect(head.status() == 403, "a HEAD is refused with 403");

  const mill::s3::credentials nobody("NOSUCHACCESSKEYID", p.who.secret_access_key());
  const mill::s3::client unknown(p.s3.configuration(), nobody);
  const mill::s3::error e = co_await refusal(unknown.get(url, 0, 10, std::string(), slabs));
  expect_refused(e, 403, "InvalidAccessKeyId");
  expect_silent(e.what(), nobody);
}

mill::task<void> missing_things(const place& p) {
  mill::slab_pool slabs(mill::MiB);
  const std::string absent_key = p.url("no/such/key");
  const std::string absent_bucket = "s3://" + p.bucket + "-that-is-not-there/";
  const mill::s3::error get = co_await refusal(p.s3.get(absent_key, 0, 10, std::string(), slabs));
  expect_refused(get, 404, "NoSuchKey");
  expect(get.object() == absent_key && !get.request_id().empty(), "the error names object and request");
  expect_refused(co_await refusal(p.s3.head(absent_key)), 404, "NoSuchKey");
  expect_refused(co_await refusal(first_of(p.s3, absent_bucket)), 404, "NoSuchBucket");
  expect_refused(co_await refusal(p.s3.put(absent_bucket + "key", mill::bytes::copy("x"))), 404, "NoSuchBucket");
  std::string named;
  try {
    co_await first_of(p.s3, p.url("no/such/prefix/"));
  } catch (const mill::configuration_error& e) {
    named = e.object();
  }
  expect(named == p.url("no/such/prefix/"), "a prefix without objects is an error that names it");
}

mill::task<void> anonymous(const place& p) {
  mill::slab_pool slabs(mill::MiB);
  co_await put(p, "private", "body");
  const mill::s3::client nobody(p.s3.configuration());
  expect_refused(co_await refusal(nobody.get(p.url("private"), 0, 10, std::string(), slabs)), 403, "AccessDenied");
  expect_refused(co_await refusal(nobody.put(p.url("private"), mill::bytes::copy("x"))), 403, "AccessDenied");
  expect_refused(co_await refusal(first_of(nobody, p.url(""))), 403, "AccessDenied");
}

}  // namespace real_server
