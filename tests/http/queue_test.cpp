// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Exchanges that wait inside libcurl for a connection.

#include <millrace/http/engine.hpp>

#include <chrono>
#include <string>
#include <utility>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/started.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/origin/server.hpp>
#include <millrace/testing/jumping_loop.hpp>

#include "tests/http/support.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using origin_server::fault;
using test::fetch;

namespace {

origin_server::options open_to_all() {
  origin_server::options o;
  o.anonymous = origin_server::anonymous_access::read;
  return o;
}

/// Longer than anything takes on these loops that is not held up.
task<void> a_while() { co_await sleep_for(500ms); }

}  // namespace

TEST_CASE("exchanges dropped while they are queued leave nothing behind for the next ones") {
  for (const bool holder_first : {false, true}) {
    testing::jumping_loop loop;
    origin_server::server origin(open_to_all());
    started<void> serving(loop, origin.serve());
    origin.objects().put("b", "k", std::string("content"));
    origin.faults().add({.key = "k", .times = 1}, fault::stall_head());
    http::engine_options one_at_a_time;
    one_at_a_time.connections_per_host = 1;
    http::engine& engine = http::engine::of(loop, one_at_a_time);
    const std::string url = origin.endpoint() + "/b/k";
    started<std::string> holder(loop, fetch(url));
    started<std::string> queued(loop, fetch(url));
    block_on(loop, a_while());
    CHECK(engine.transfers() == 2);
    CHECK(origin.stats().requests == 1);
    (holder_first ? holder : queued) = started<std::string>();
    (holder_first ? queued : holder) = started<std::string>();
    CHECK(engine.transfers() == 0);
    for (int i = 0; i < 3; ++i) CHECK(block_on(loop, fetch(url)) == "200 content");
    serving = started<void>();
    CHECK(loop.frames() == 0);
  }
}
