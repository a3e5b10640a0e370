// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Conformance checks of streams that are stored, in one request and in parts.

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/http/message.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "tests/real_server/checks.hpp"

namespace real_server {

namespace mill = millrace;

namespace {

constexpr mill::s3::put_options in_parts{.part = 5 * mill::MiB, .parts = 3};

mill::async_generator<mill::bytes> pieces(std::string text, std::size_t piece) {
  for (std::size_t at = 0; at < text.size(); at += piece) {
    mill::bytes next = mill::bytes::copy(std::string_view(text).substr(at, piece));
    co_yield mill::give(next);
  }
}

mill::async_generator<mill::bytes> broken(std::string text, std::size_t piece) {
  mill::stream<mill::bytes> whole = pieces(std::move(text), piece);
  while (std::optional<mill::bytes> next = co_await whole.next()) co_yield mill::give(*next);
  throw mill::decode_error("the source broke");
}

/// The answer to ListMultipartUploads.
mill::task<std::string> open_uploads(const place& p) {
  mill::s3::operation op("GET", p.bucket, std::string());
  op.query = "uploads";
  const auto s = p.session();
  mill::http::body_options small;
  mill::http::exchange x = co_await mill::s3::send(*s, op, std::move(small));
  co_return co_await mill::http::read_all(x, mill::MiB);
}

mill::task<void> expect_no_uploads(const place& p) {
  const std::string listed = co_await open_uploads(p);
  expect(listed.find("ListMultipartUploadsResult") != std::string::npos, "a list of uploads");
  expect(listed.find("<Upload>") == std::string::npos, "no upload is left behind: " + listed);
}

/// Waits for what was handed to the loop's root scope.
mill::task<void> clean_up() {
  mill::executor& ex = co_await mill::this_executor();
  while (ex.background() > 0) co_await mill::sleep_for(std::chrono::milliseconds(1));
}

mill::task<std::string> read_in_parts(const place& p, std::string url) {
  std::vector<mill::shard> one(1, mill::shard(url));
  mill::stream<mill::chunk> chunks =
      mill::from_range(std::move(one)) |
      mill::fetch(p.s3, {.shards = 1, .window = 4 * mill::MiB, .part = mill::MiB + 1});
  std::string text;
  while (std::optional<mill::chunk> c = co_await chunks.next()) text += c->data.view();
  co_return text;
}

}  // namespace

mill::task<void> streams(const place& p) {
  const mill::s3::header_field about[] = {{"step", "7"}};
  for (const std::size_t size :
       {std::size_t(0), std::size_t(1), 5 * mill::MiB, 5 * mill::MiB + 1, 17 * mill::MiB + 3}) {
    const std::string body = pattern(size);
    const std::string feed = std::getenv("MILLRACE_TEST_NO_LINE_FEEDS") == nullptr ? "\n" : "";
    const std::string url = p.url("streams/a b+" + std::to_string(size) + feed + "\x01");
    mill::s3::put_options o = in_parts;
    o.size = size;
    o.content_type = "application/x-test";
    o.metadata = about;
    const mill::s3::object_info stored = co_await p.s3.put(url, pieces(body, 700'001), o);
    const mill::s3::object_info there = co_await p.s3.head(url);
    expect(stored.size == size && there.size == size, "the size of " + url);
    expect(stored.etag == there.etag, "the ETag " + there.etag + " of " + url);
    expect((stored.etag.find('-') != std::string::npos) == (size > 5 * mill::MiB),
           "parts only where one is not enough");
    expect((co_await read_in_parts(p, url)) == body, "what was stored: " + url);
  }
  co_await expect_no_uploads(p);
}

mill::task<void> broken_streams(const place& p) {
  const std::string url = p.url("streams/broken");
  const std::string body = pattern(12 * mill::MiB);
  bool thrown = false;
  try {
    co_await p.s3.put(url, broken(body, mill::MiB), in_parts);
  } catch (const mill::decode_error&) {
    thrown = true;
  }
  expect(thrown, "the exception of the source");
  co_await clean_up();
  co_await expect_no_uploads(p);

  mill::executor& ex = co_await mill::this_executor();
  for (const int pause : {0, 1, 3, 10, 20, 40, 80, 160}) {
    {
      const mill::spawned<mill::s3::object_info> running(ex, p.s3.put(url, pieces(body, mill::MiB), in_parts));
      co_await mill::sleep_for(std::chrono::milliseconds(pause));
    }
    co_await clean_up();
    co_await expect_no_uploads(p);
  }
  const mill::s3::object_info whole = co_await p.s3.put(url, pieces(body, mill::MiB), in_parts);
  expect((co_await read_in_parts(p, url)) == body && whole.size == body.size(), "and then it can be stored");
}

mill::task<void> new_objects_only(const place& p) {
  const std::string url = p.url("streams/new");
  mill::s3::put_options o;
  o.only_new = true;
  co_await p.s3.put(url, mill::bytes::copy("first"), o);
  expect_refused(co_await refusal(p.s3.put(url, mill::bytes::copy("second"), o)), 412, "PreconditionFailed");
  expect_refused(co_await refusal(p.s3.put(url, pieces("third", 2), o)), 412, "PreconditionFailed");
  expect((co_await read_in_parts(p, url)) == "first", "the first object stays");
}

}  // namespace real_server
