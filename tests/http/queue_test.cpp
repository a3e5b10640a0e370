// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Connections: how many there are, how long they are kept, and exchanges that wait inside libcurl for one.

#include <millrace/http/engine.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/census.hpp>
#include <millrace/testing/jumping_loop.hpp>

#include "tests/http/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using s3_server::fault;
using test::fetch;

namespace {

s3_server::options open_to_all() {
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::read;
  return o;
}

/// Longer than anything takes on these loops that is not held up.
task<void> a_while() { co_await sleep_for(500ms); }

}  // namespace

TEST_CASE("exchanges dropped while they are queued leave nothing behind for the next ones") {
  for (const bool holder_first : {false, true}) {
    testing::census process;
    process.count_descriptors();
    {
      testing::jumping_loop loop;
      s3_server::server server(open_to_all());
      spawned<void> serving(loop, server.serve());
      server.objects().put("b", "k", std::string("content"));
      server.faults().add({.key = "k", .times = 1}, fault::stall_head());
      http::engine_options one_at_a_time;
      one_at_a_time.connections_per_host = 1;
      http::engine& engine = http::engine::of(loop, one_at_a_time);
      const std::string url = server.endpoint() + "/b/k";
      spawned<std::string> holder(loop, fetch(url));
      spawned<std::string> queued(loop, fetch(url));
      block_on(loop, a_while());
      CHECK(engine.transfers() == 2);
      CHECK(server.stats().requests == 1);
      (holder_first ? holder : queued) = spawned<std::string>();
      (holder_first ? queued : holder) = spawned<std::string>();
      CHECK(engine.transfers() == 0);
      for (int i = 0; i < 3; ++i) CHECK(block_on(loop, fetch(url)) == "200 content");
      serving = spawned<void>();
      CHECK(loop.frames() == 0);
    }
    CHECK(process.difference() == "");
  }
}

namespace {

task<void> fetch_at_once(std::string url, std::size_t n) {
  executor& ex = co_await this_executor();
  std::vector<spawned<std::string>> running;
  for (std::size_t i = 0; i < n; ++i) running.emplace_back(ex, fetch(url));
  for (spawned<std::string>& one : running) {
    const std::string answer = co_await one;
    CHECK(answer == "200 content");
  }
}

}  // namespace

TEST_CASE("connections are kept while fewer are needed for a time") {
  testing::jumping_loop loop;
  s3_server::server server(open_to_all());
  const spawned<void> serving(loop, server.serve());
  server.objects().put("b", "k", std::string("content"));
  for (const std::size_t n : {12, 1, 12}) {
    block_on(loop, fetch_at_once(server.endpoint() + "/b/k", n));
    CHECK(server.stats().connections == 12);
  }
}

TEST_CASE("connections are bounded, for each host and in all") {
  for (const bool in_all : {true, false}) {
    testing::jumping_loop loop;
    s3_server::server one(open_to_all());
    s3_server::server other(open_to_all());
    const spawned<void> serving_one(loop, one.serve());
    const spawned<void> serving_other(loop, other.serve());
    http::engine_options few;
    (in_all ? few.connections : few.connections_per_host) = 2;
    http::engine::of(loop, few);
    std::vector<spawned<std::string>> waiting;
    for (s3_server::server* server : {&one, &other}) {
      server->objects().put("b", "k", std::string("content"));
      server->faults().add({.key = "k"}, fault::stall_head());
      for (int i = 0; i < 4; ++i) waiting.emplace_back(loop, fetch(server->endpoint() + "/b/k"));
    }
    block_on(loop, a_while());
    CHECK(one.stats().connections + other.stats().connections == (in_all ? 2 : 4));
    CHECK(http::engine::of(loop).transfers() == 8);
  }
}
