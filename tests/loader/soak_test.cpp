// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/run.hpp>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/io/timeout.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/testing/jumping_loop.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/loader/soak.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using s3_server::random_faults;
using soak::data_set;
using soak::reading;

namespace {

struct how {
  random_faults faults = {};
  bool sizes_known = true;
  unsigned loops = 1;
};

constexpr fetch_options narrow{.shards = 6, .window = 256 * KiB, .part = 64 * KiB};

s3_server::options small_pages() {
  s3_server::options o;
  o.list_page = 7;
  return o;
}

s3::client client_of(const std::string& endpoint, s3::config_options o, const http::transport_options& t) {
  o.endpoint = endpoint;
  o.region = "us-east-1";
  return s3::client(s3::config(o), std::make_shared<s3::fixed_credentials>(s3::credentials("test-key", "test-secret")),
                    t);
}

std::uint64_t announced_seed() {
  const std::uint64_t seed = testing::virtual_loop::seed_from_environment(20'261'121);
  std::fprintf(stderr, "soak: MILLRACE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

void check(const reading& r, const data_set& data) {
  CHECK(r.errors <= data.expected.size() / 10);  // retries are there for that
  CHECK(r.members > 0);
}

template <class Server>
std::uint64_t requests_of(Server& server) {
  const std::uint64_t requests = server.stats().requests;
  std::fprintf(stderr, "soak: %llu requests, %llu faults\n", static_cast<unsigned long long>(requests),
               static_cast<unsigned long long>(server.faults().injected()));
  return requests;
}

}  // namespace

TEST_CASE("soak: transfers under random faults deliver every member as it was stored, or say which not", "[slow]") {
  const std::uint64_t seed = announced_seed();
  INFO("MILLRACE_SEED=" << seed);
  s3_server::background server(small_pages());
  const data_set large(server.objects(), "large", 40, 40, 40'000);  // shards of several parts
  const data_set small(server.objects(), "small", 60, 4, 12'000);   // of one part: their checksums are compared
  s3::config_options o;
  o.max_attempts = 8;
  // Real pauses would be most of the time of this test.
  o.retry.base = std::chrono::microseconds(50);
  o.retry.throttling_base = std::chrono::microseconds(200);
  o.retry.max_pause = 5ms;
  o.retry.max_over_hint = 1ms;
  http::transport_options t;
  t.first_byte_timeout = 250ms;
  t.stall_timeout = 100ms;
  const s3::client c = client_of(server.endpoint(), o, t);

  const auto round = [&](const data_set& data, how h, std::uint64_t number) {
    INFO("round " << number);
    h.faults.seed = seed + number;
    server.faults().clear();
    server.faults().randomize(h.faults);
    reading r(data);
    r.read_all(c, h.sizes_known, [&](stream<shard> source) {
      for (member& m : run(std::move(source) | fetch(c, narrow) | untar(), {}, {.loops = h.loops})) r.take(m);
    });
    check(r, data);
  };
  round(large, {.faults = {.probability = 0.1}, .sizes_known = false, .loops = 2}, 1);
  round(large, {.faults = {.probability = 0.2, .silent = false}, .loops = 2}, 2);
  round(small, {.faults = {.probability = 0.2, .damage = true}}, 3);
  round(large, {.faults = {.probability = 0.02, .slow = true}}, 4);
  CHECK(requests_of(server) > 700);
}

namespace {

/// The time-outs and pauses of every day, except for that of connecting: libcurl keeps it in real time, and its timer
/// would cut every jump into small ones.
s3::client everyday_client(const std::string& endpoint, http::transport_options t = {}) {
  t.connect_timeout = 1h;
  return client_of(endpoint, {}, t);
}

/// Client and server on one loop whose time is virtual.
class one_loop {
 public:
  explicit one_loop(std::uint64_t seed, duration grace)
      : loop(seed, {.grace = grace}), server(small_pages()), serving_(loop, server.serve()) {}

  /// Runs the pipeline until `deadline`; timeout_error when something hangs.
  void deliver(stream<member> members, reading& r, time_point deadline) {
    block_on(loop, with_timeout(deadline - loop.now(), take_all(std::move(members), r)));
  }

  testing::jumping_loop loop;
  s3_server::server server;

 private:
  static task<void> take_all(stream<member> members, reading& r) {
    while (std::optional<member> m = co_await members.next()) r.take(*m);
  }
  spawned<void> serving_;
};

}  // namespace

TEST_CASE("soak on virtual time: thousands of transfers with the time-outs and pauses of every day, and none hangs",
          "[slow]") {
  const std::uint64_t seed = announced_seed();
  INFO("MILLRACE_SEED=" << seed);
  one_loop world(seed, 200us);
  const data_set large(world.server.objects(), "large", 40, 40, 40'000);
  const data_set small(world.server.objects(), "small", 60, 4, 12'000);
  const s3::client c = everyday_client(world.server.endpoint());

  const auto round = [&](const data_set& data, how h, std::uint64_t number) {
    INFO("round " << number);
    h.faults.seed = seed + number;
    h.faults.slow = true;
    h.faults.longest_pause = 40s;  // beyond the time-outs
    world.server.faults().clear();
    world.server.faults().randomize(h.faults);
    // A fault costs a minute or two at most (a slow drip before a time-out, the pause after it).
    const time_point deadline = world.loop.now() + data.expected.size() * 1h;
    reading r(data);
    r.read_all(c, h.sizes_known, [&](stream<shard> source) {
      try {
        world.deliver(std::move(source) | fetch(c, narrow) | untar(), r, deadline);
      } catch (const timeout_error& e) {
        FAIL(e.what() << ": something hangs before " << r.position());
      }
    });
    check(r, data);
  };
  std::uint64_t number = 0;
  for (int i = 0; i < 4; ++i) {
    round(large, {.faults = {.probability = 0.1}}, ++number);
    round(large, {.faults = {.probability = 0.1}, .sizes_known = false}, ++number);
    round(large, {.faults = {.probability = 0.2}}, ++number);
    round(small, {.faults = {.probability = 0.2, .damage = true}}, ++number);
  }
  std::fprintf(stderr, "soak: %lld virtual minutes\n", static_cast<long long>(world.loop.elapsed() / 1min));
  CHECK(requests_of(world.server) > 3300);
}

TEST_CASE("soak: the deadline on virtual time catches a transfer that hangs") {
  one_loop world(1, 20ms);  // no other timer is near: a kernel that is late must not bring the deadline on early
  const data_set data(world.server.objects(), "small", 3, 4, 12'000);
  http::transport_options patient;
  patient.first_byte_timeout = patient.stall_timeout = 10'000h;
  const s3::client c = everyday_client(world.server.endpoint(), patient);
  world.server.faults().add({.key = "small/001.tar"}, s3_server::fault::stall_body(1000));
  reading r(data);
  const time_point deadline = world.loop.now() + 3h;
  CHECK_THROWS_AS(world.deliver(c.list(data.prefix) | fetch(c, narrow) | untar(), r, deadline), timeout_error);
  CHECK(world.loop.elapsed() == 3h);
  CHECK(r.position() == "member 0.bin of s3://soak/small/001.tar");
}
