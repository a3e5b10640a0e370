// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What fetch() has learnt of a store's host, in the next fetch() of the runtime.

#include <millrace/shards/storage.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/http/options.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/shards/http_storage.hpp>
#include <millrace/shards/resident_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/known_hosts.hpp"

using namespace millrace;
using millrace::testing::virtual_loop;
using namespace std::chrono_literals;

namespace {

/// Seconds until the fetch of a GiB from this host has come.
double seconds_of(virtual_loop& loop, const std::shared_ptr<const storage>& store, const std::string& host,
                  const fetch_options& options = {}) {
  std::vector<shard> list;
  for (int i = 0; i < 16; ++i) list.push_back(shard(host + "://bucket/" + std::to_string(i), 64 * MiB));
  const time_point begun = loop.now();
  auto chunks = from_range(std::move(list)) | fetch(store, options);
  std::size_t bytes = 0;
  const auto drain = [&]() -> task<void> {
    while (std::optional<chunk> c = co_await chunks.next()) bytes += c->data.size();
  };
  block_on(loop, drain());
  REQUIRE(bytes == 1 * GiB);
  return std::chrono::duration<double>(loop.now() - begun).count();
}

TEST_CASE("the second fetch of a host begins with what the first one has learnt") {
  virtual_loop loop;
  test::known_hosts runtime(loop);
  const auto store = std::make_shared<test::far_store>(100ms, 30e6);
  const double first = seconds_of(loop, store, "a");
  const double second = seconds_of(loop, store, "a");
  const double other = seconds_of(loop, store, "b");
  INFO(first << " s, then " << second << " s; of another host " << other << " s");
  CHECK(second < first - 0.3);
  CHECK(other == Approx(first).epsilon(0.05));
  store->most_reading = 0;
  seconds_of(loop, store, "a", {.window = 1 * MiB, .part = 1 * MiB, .requests = 6});
  CHECK(store->most_reading == 6);
}

/// Bytes that the fetch of a GiB from host "a" has asked for when so many have come.
std::size_t asked_until(virtual_loop& loop, const std::shared_ptr<const test::far_store>& store, std::size_t enough) {
  store->asked = 0;
  const std::vector<shard> list{shard("a://bucket/x", 1 * GiB)};
  auto chunks = from_range(list) | fetch(std::shared_ptr<const storage>(store));
  std::size_t bytes = 0;
  const auto some = [&]() -> task<void> {
    while (bytes < enough) {
      const std::optional<chunk> c = co_await chunks.next();
      bytes += c->data.size();
    }
  };
  block_on(loop, some());
  return store->asked;
}

TEST_CASE("where reads are known to be quick, a run begins with few bytes; where they are slow, with all at once") {
  for (const bool near : {true, false}) {
    virtual_loop loop;
    test::known_hosts runtime(loop);
    const auto store = std::make_shared<test::far_store>(near ? 300us : 100ms, near ? 2e9 : 30e6);
    store->object_bytes = 1 * GiB;
    asked_until(loop, store, 1 * GiB);
    const std::size_t asked = asked_until(loop, store, 3 * MiB);
    INFO((near ? "near: " : "far: ") << asked / MiB << " MiB");
    CHECK((near ? asked <= 10 * MiB : asked >= 48 * MiB));
  }
}

TEST_CASE("where reads are known to be quick, a part that is longer than the first few bytes is read nevertheless") {
  virtual_loop loop;
  test::known_hosts runtime(loop);
  const auto store = std::make_shared<test::far_store>(300us, 2e9);
  store->object_bytes = 1 * GiB;
  asked_until(loop, store, 1 * GiB);
  store->object_bytes = 16 * MiB;
  for (const fetch_options how : {fetch_options{}, fetch_options{.window = 512 * KiB, .part = 256 * KiB}}) {
    for (const bool sized : {true, false}) {  // of one without a size, memory for a whole part is reserved
      INFO(how.part << (sized ? "" : ", size not known"));
      const std::vector<shard> list{sized ? shard("a://bucket/x", 16 * MiB) : shard("a://bucket/x")};
      auto chunks = from_range(list) | fetch(std::shared_ptr<const storage>(store), how);
      std::size_t bytes = 0;
      const auto all = [&]() -> task<void> {
        while (const std::optional<chunk> c = co_await chunks.next()) bytes += c->data.size();
      };
      block_on(loop, all());
      CHECK(bytes == 16 * MiB);
    }
  }
}

TEST_CASE("stores name their hosts") {
  s3::config_options at;
  at.endpoint = "https://minio.example:9000";
  const s3::client own(s3::config(at), s3::credentials("key", "secret"));
  const std::shared_ptr<const storage> s3_store = s3::as_storage(own);
  CHECK(s3_store->host("s3://corpus/a") == s3_store->host("s3://other/b"));
  CHECK_FALSE(s3_store->host("s3://corpus/a").empty());
  s3::config_options aws;
  aws.region = "eu-central-1";
  const std::shared_ptr<const storage> of_aws =
      s3::as_storage(s3::client(s3::config(aws), s3::credentials("key", "secret")));
  CHECK(of_aws->host("s3://corpus/a/b") == of_aws->host("S3://corpus/c"));
  CHECK(of_aws->host("s3://corpus/a") != of_aws->host("s3://other/a"));
  const http_storage web;
  CHECK(web.host("https://me:secret@Example.org:8443/a/b?c") == "example.org:8443");
  CHECK(web.host("http://example.org?q") == "example.org");
  const std::shared_ptr<const storage> both = stores(s3_store, std::make_shared<http_storage>(), files());
  CHECK(both->host("s3://corpus/a") == s3_store->host("s3://corpus/a"));
  CHECK(both->host("http://example.org/a") == "example.org");
  CHECK(both->host("/data/a.tar").empty());
  CHECK(hedged(s3_store)->host("s3://corpus/a") == s3_store->host("s3://corpus/a"));
  CHECK(resident(s3_store, {.bytes = MiB})->host("s3://corpus/a") == s3_store->host("s3://corpus/a"));
}

}  // namespace
