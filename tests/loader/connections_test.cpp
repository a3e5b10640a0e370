// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The limits of HTTP connections, which run() gives to its loops.

#include <millrace/loader/run.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/http/engine.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/http_storage.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using s3_server::fault;

static_assert(std::is_trivially_destructible_v<run_options> && std::is_aggregate_v<run_options>);
static_assert(std::is_trivially_destructible_v<runtime_options> && std::is_aggregate_v<runtime_options>);

namespace {

constexpr std::size_t objects = 8;

/// With objects of 1000 bytes that are slow to come, or never do.
class slow_origin {
 public:
  explicit slow_origin(fault f = fault::delay_head(std::chrono::milliseconds(10))) : server_(open_to_all()) {
    for (std::size_t i = 0; i < objects; ++i) server_.put("b", std::to_string(i), std::string(1000, 'x'));
    server_.faults().add({}, std::move(f));
  }

  /// What all objects hold, through S3 or as plain URLs.
  stream<chunk> chunks(bool s3_urls) const {
    const std::string endpoint = server_.endpoint();
    s3::config_options how;
    how.endpoint = endpoint;
    how.region = "us-east-1";
    const s3::client c(s3::config(how), s3::credentials("test-key", "test-secret"));
    std::vector<shard> all;
    for (std::size_t i = 0; i < objects; ++i) {
      all.emplace_back((s3_urls ? "s3://b/" : server_.endpoint() + "/b/") + std::to_string(i), 1000);
    }
    const fetch_options at_once{.shards = objects, .window = 1 * MiB, .part = 64 * KiB};
    if (s3_urls) return from_range(std::move(all)) | fetch(s3::as_storage(c), at_once);
    return from_range(std::move(all)) | fetch(std::make_shared<const http_storage>(), at_once);
  }

  /// Bytes that a run reads.
  std::size_t read(bool s3_urls, const runtime_options& o) const {
    std::size_t n = 0;
    for (const chunk& piece : run(chunks(s3_urls), {}, o)) n += piece.data.size();
    return n;
  }

  /// Requests that were answered at once, at most.
  std::uint64_t peak() const { return server_.stats().peak_in_flight; }

  /// Waits until so many have been asked at once, a minute at most.
  void wait_for_peak(std::uint64_t n) const {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (peak() < n && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
  }

 private:
  static s3_server::options open_to_all() {
    s3_server::options o;
    o.anonymous = s3_server::anonymous_access::read;
    return o;
  }
  s3_server::background server_;
};

}  // namespace

TEST_CASE("run() bounds the connections of each of its loops") {
  for (const bool s3_urls : {true, false}) {
    for (const unsigned loops : {1u, 2u}) {
      CAPTURE(s3_urls, loops);
      slow_origin server;
      CHECK(server.read(s3_urls, {.loops = loops, .http = {.connections_per_host = 2}}) == objects * 1000);
      CHECK(server.peak() <= 2 * loops);
    }
  }
}

TEST_CASE("run() opens as many connections as it may while there is something to ask for") {
  for (const bool s3_urls : {true, false}) {
    for (const unsigned loops : {1u, 2u}) {
      CAPTURE(s3_urls, loops);
      // Every loop has a share of what is known to come by ranges; the rest stays on the first one.
      const std::uint64_t all = s3_urls ? 2 * loops : 2;
      slow_origin server(fault::stall_head());  // no request is answered
      const auto reading = run(server.chunks(s3_urls), {}, {.loops = loops, .http = {.connections_per_host = 2}});
      server.wait_for_peak(all);
      REQUIRE(server.peak() == all);  // before the end, when others may take the places of those that are dropped
    }
  }
}

TEST_CASE("limits that nothing could work with are refused") {
  const http::engine_options bad[] = {{.connections_per_host = 0}, {.connections = 0}, {.connections = -1}};
  for (const http::engine_options& limits : bad) {
    slow_origin server;
    for (const bool s3_urls : {true, false}) {
      CHECK_THROWS_AS(server.read(s3_urls, {.http = limits}), configuration_error);
    }
    CHECK(server.peak() == 0);
  }
}
