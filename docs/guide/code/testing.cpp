// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/testing.md.

// begin includes
#include <millrace/testing/census.hpp>
#include <millrace/testing/scripted_source.hpp>
#include <millrace/testing/store_model.hpp>
#include <millrace/testing/virtual_loop.hpp>
// end includes

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

namespace mill = millrace;
using namespace std::chrono_literals;

namespace {

// begin stage
/// Yields each item of the source, at most one in 10 ms.
mill::async_generator<int> paced(mill::async_generator<int> source) {
  while (std::optional<int> item = co_await source.next()) {
    co_await mill::sleep_for(10ms);
    co_yield *item;
  }
}
// end stage

// begin rank
/// What one rank does: it reads all objects.
mill::task<void> rank_main(std::shared_ptr<const mill::storage> store, double& bytes) {
  auto chunks = mill::stream<mill::shard>(store->list("s3://corpus/train/")) | mill::fetch(store);
  while (std::optional<mill::chunk> c = co_await chunks.next()) bytes += static_cast<double>(c->data.size());
}
// end rank

}  // namespace

// begin time
TEST_CASE("paced() spreads a burst", "[guide]") {
  mill::testing::virtual_loop loop;
  mill::testing::scripted_source<int> script;
  script.item(1).item(2).item(3, 100ms);
  auto items = script.open() | paced;
  CHECK(block_on(loop, collect(std::move(items))) == std::vector<int>{1, 2, 3});
  CHECK(loop.elapsed() == 130ms);  // exactly, whatever the machine does
}
// end time

// begin error
TEST_CASE("paced() passes an error on", "[guide]") {
  mill::testing::virtual_loop loop(mill::testing::virtual_loop::seed_from_environment(1));  // the ready queue shuffled
  mill::testing::scripted_source<int> script;
  script.item(1).fail(std::make_exception_ptr(mill::io_error(std::errc::io_error, "on purpose")));
  CHECK_THROWS_AS(block_on(loop, collect(script.open() | paced)), mill::io_error);
}
// end error

// begin census
TEST_CASE("paced() leaves nothing behind when it is dropped", "[guide]") {
  mill::testing::virtual_loop loop;
  mill::testing::census before(loop);
  mill::testing::scripted_source<int> script;
  script.item(1).never();
  {
    auto items = script.open() | paced;
    CHECK_THROWS_AS(block_on(loop, collect(std::move(items))), mill::testing::deadlock);  // never() never comes
  }
  loop.drain();
  CHECK(before.difference() == "");  // frames, operations, timers
  CHECK(!script.open_now());
}
// end census

// begin fleet
TEST_CASE("20 ranks share a prefix that takes 400 requests a second", "[guide]") {
  mill::testing::store_model store({.reads = {.each_second = 400}});
  for (int i = 0; i < 100; ++i) store.put("s3://corpus/train/" + std::to_string(i), 500'000'000);  // zeros
  mill::testing::virtual_loop loop;
  std::vector<double> bytes(20);
  std::vector<mill::spawned<void>> ranks;
  for (std::uint64_t r = 0; r < 20; ++r) ranks.emplace_back(loop, rank_main(store.client(r), bytes[r]));
  loop.run_for(30s);
  ranks.clear();
  const mill::testing::store_counts counts = store.counts();
  CHECK(counts.refused < counts.requests / 5);
  for (const double b : bytes) CHECK(b > 0.5 * static_cast<double>(counts.bytes) / 20);
}
// end fleet

// begin server
TEST_CASE("a broken part continues where it broke", "[guide]") {
  using mill::s3_server::fault;
  mill::s3_server::background server;  // an S3 server in this process; it ends with the object
  server.put("corpus", "labels.txt", std::string(1000, 'x'));
  server.faults().add({.method = "GET", .key = "labels.txt", .times = 1}, fault::reset_in_body(400));

  mill::s3::config_options o;
  const std::string endpoint = server.endpoint();
  o.endpoint = endpoint;
  const mill::s3::client s3(mill::s3::config(o), mill::s3::credentials("test-key", "test-secret"));
  const auto loop = mill::make_event_loop();
  CHECK(block_on(*loop, s3.read("s3://corpus/labels.txt")).size() == 1000);
  CHECK(server.faults().injected() == 1);
}
// end server

TEST_CASE("the guide's random faults leave the data as it is", "[guide]") {
  mill::s3_server::background server;
  server.put("corpus", "labels.txt", std::string(1000, 'x'));
  mill::s3::config_options o;
  const std::string endpoint = server.endpoint();
  o.endpoint = endpoint;
  o.max_attempts = 10;
  o.retry.base = mill::duration(1000);
  const mill::s3::client s3(mill::s3::config(o), mill::s3::credentials("test-key", "test-secret"));
  const auto loop = mill::make_event_loop();
  // begin random
  server.faults().randomize({.seed = 42, .probability = 0.1});  // the same requests fail in every run
  // end random
  for (int i = 0; i < 20; ++i) CHECK(block_on(*loop, s3.read("s3://corpus/labels.txt")).size() == 1000);
}

TEST_CASE("the guide's store is some way off", "[guide]") {
  // begin far
  mill::s3_server::options far;
  far.away.first_byte = std::chrono::milliseconds(30);
  far.away.spread = 0.3;                  // of the logarithm
  far.away.connection_rate = 85'000'000;  // bytes in a second
  mill::s3_server::background server(far);
  // end far
  server.put("corpus", "labels.txt", std::string(1000, 'x'));
  mill::s3::config_options o;
  const std::string endpoint = server.endpoint();
  o.endpoint = endpoint;
  const mill::s3::client s3(mill::s3::config(o), mill::s3::credentials("test-key", "test-secret"));
  const auto loop = mill::make_event_loop();
  CHECK(block_on(*loop, s3.read("s3://corpus/labels.txt")).size() == 1000);
}
