// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/retry/request_rate.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/aimd_limit.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using millrace::detail::request_gate;
using millrace::detail::request_gates;
using millrace::detail::request_rate;
using testing::virtual_loop;

TEST_CASE("a limit halves once per burst of refusals and grows by one per round", "[s3][throttling]") {
  aimd_limit l;
  CHECK(l.limit() == aimd_limit::none);
  l.succeeded();
  CHECK(l.limit() == aimd_limit::none);
  const std::uint64_t first = l.generation();
  l.refused(first, 16);
  CHECK(l.limit() == 8);
  for (std::size_t left = 15; left > 0; --left) l.refused(first, left);  // the rest of the burst
  CHECK(l.limit() == 8);
  for (int i = 0; i < 9; ++i) l.succeeded();
  CHECK(l.limit() == 9);
  const std::uint64_t second = l.generation();
  l.refused(second, 4);  // the limit was not even reached
  CHECK(l.limit() == 2);
  l.refused(l.generation(), 2);
  l.refused(l.generation(), 1);
  l.refused(l.generation(), 1);
  CHECK(l.limit() == 1);  // never none at all
  int successes = 0;
  while (l.limit() != aimd_limit::none) {
    l.succeeded();
    ++successes;
  }
  CHECK(successes > 16);  // until there is room for twice the 16
  CHECK(successes < 32 * 32);
}

namespace {

time_point at(double seconds) { return time_point(duration(static_cast<std::int64_t>(1e9 * seconds))); }

/// A client that has made 100 requests in each of some seconds, until `now`.
request_rate busy(double& now) {
  request_rate r;
  for (int i = 0; i < 1000; ++i) r.begun(at(now += 0.01));
  return r;
}

/// Two requests that begin and are refused: one alone would be forgiven.
void refuse_twice(request_rate& r, double now, double jitter) {
  r.refused(at(now), at(now), jitter);
  r.refused(at(now), at(now), jitter);
}

/// `count` requests through a gate, of 10 ms each.
class crowd {
 public:
  crowd(virtual_loop& loop, request_gate& gate, int count) : gate_(gate) {
    for (int i = 0; i < count; ++i) all_.emplace_back(loop, one(i));
  }
  bool done() const {
    return std::all_of(all_.begin(), all_.end(), [](const spawned<void>& s) { return s.done(); });
  }
  void drop(std::size_t i) { all_[i] = spawned<void>(); }
  std::vector<int> order;
  std::vector<request_gate::turn> turns;

 private:
  task<void> one(int i) {
    const request_gate::turn t = co_await gate_.enter();
    order.push_back(i);
    turns.push_back(t);
    co_await sleep_for(10ms);
    executor& ex = co_await this_executor();
    gate_.succeeded(ex.now());
  }
  request_gate& gate_;
  std::vector<spawned<void>> all_;
};

task<std::optional<shard>> first_of(async_generator<shard>& from) { co_return co_await from.next(); }

}  // namespace

TEST_CASE("a refusal that is alone limits nothing", "[s3][throttling]") {
  request_rate r;
  for (int i = 0; i < 6; ++i) r.begun(at(0));
  r.refused(at(0), at(0.05), 1);
  CHECK_FALSE(r.limited());
  CHECK(r.next() <= at(0.05));
  double now = 0.05;
  const auto succeed = [&](int times) {
    for (int i = 0; i < times; ++i) {
      r.begun(at(now += 0.01));
      r.succeeded(at(now));
    }
  };
  succeed(30);
  r.refused(at(now), at(now), 1);
  CHECK_FALSE(r.limited());
  succeed(29);
  r.refused(at(now), at(now), 1);
  CHECK(r.limited());
}

TEST_CASE("a rate has no limit until requests are refused; then half, and 6 % less each time", "[s3][throttling]") {
  double now = 0;
  request_rate r = busy(now);
  CHECK_FALSE(r.limited());
  refuse_twice(r, now, 0.5);
  CHECK(r.limit() == Approx(50).epsilon(0.02));
  CHECK(r.next() == at(now) + duration(static_cast<std::int64_t>(0.5e9 / r.limit())));  // not all at the same time
  const double half = r.limit();
  for (int i = 0; i < 20; ++i) r.refused(at(now - 0.02), at(now + 0.01), 0.5);  // the rest of the burst
  CHECK(r.limit() == half);
  r.refused(at(now + 0.02), at(now + 0.03), 0.5);
  CHECK(r.limit() == Approx(0.94 * half));
}

TEST_CASE("a client that is refused as it starts begins where all others do", "[s3][throttling]") {
  for (const int requests : {1, 6, 300}) {
    request_rate r;
    for (int i = 0; i < requests; ++i) r.begun(at(1e-4 * i));
    r.refused(at(0.05), at(0.06), 1);
    r.refused(at(0.05), at(0.06), 1);
    CHECK(r.limit() == 4);
    // And comes up by a quarter in each second.
    double now = 0.06;
    while (now < 10.06) {
      now = std::max(now + 1e-3, 1e-9 * static_cast<double>(r.next().time_since_epoch().count()));
      r.begun(at(now));
      r.succeeded(at(now));
    }
    CHECK(r.limit() > 30);
    CHECK(r.limit() < 70);
  }
}

TEST_CASE("a limit that is not needed is lifted, one that is comes back slowly", "[s3][throttling]") {
  double now = 0;
  request_rate r = busy(now);
  refuse_twice(r, now, 0);
  for (int i = 0; i < 60; ++i) {
    now = std::max(now, 1e-9 * static_cast<double>(r.next().time_since_epoch().count()));
    r.begun(at(now));
    r.succeeded(at(now));
  }
  CHECK(r.limit() < 56);
  request_rate idle = busy(now);
  refuse_twice(idle, now, 0);
  int successes = 0;
  for (; idle.limited(); ++successes) {
    REQUIRE(successes < 1000);
    idle.begun(at(now += 0.1));  // a fifth of what it may
    idle.succeeded(at(now));
  }
  CHECK(successes > 100);
}

TEST_CASE("a store that refuses everything is asked ever more rarely", "[s3][throttling]") {
  double now = 0;
  request_rate r = busy(now);
  refuse_twice(r, now, 1);
  int asked = 0;
  for (const double end = now + 60; now < end; ++asked) {
    now = std::max(now, 1e-9 * static_cast<double>(r.next().time_since_epoch().count()));
    r.begun(at(now));
    r.refused(at(now), at(now + 0.005), 1);
    now += 0.005;
  }
  CHECK(asked < 110);
  CHECK(r.limit() < 0.5);
  CHECK(r.limit() >= 0.1);
}

TEST_CASE("a gate lets through what its rate allows, in order, and forgets no waiter", "[s3][throttling]") {
  virtual_loop loop;
  request_gate gate;
  crowd first(loop, gate, 16);
  loop.run_until([&] { return first.done(); });
  CHECK(loop.elapsed() == 10ms);
  CHECK(first.turns.back().begun == first.turns.back().asked);
  gate.refused(first.turns.back(), loop.now(), 1);
  gate.refused(first.turns.back(), loop.now(), 1);  // 4 in a second, the next one in 250 ms
  CHECK(gate.refusals() == 2);
  crowd second(loop, gate, 12);
  loop.run_until([&] { return second.order.size() == 3; });
  CHECK(loop.elapsed() > 600ms);
  second.drop(3);  // the next one
  second.drop(8);
  loop.run_until([&] { return second.order.size() == 10; });
  CHECK(second.order == std::vector<int>{0, 1, 2, 4, 5, 6, 7, 9, 10, 11});
  CHECK(loop.elapsed() > 1500ms);
  CHECK(loop.elapsed() < 2500ms);
  CHECK(second.turns.back().begun - second.turns.back().asked > 1400ms);
}

TEST_CASE("clients that were refused do not ask in step, and one that was not does not wait", "[s3][throttling]") {
  request_rate half;
  request_rate none;
  for (request_rate* r : {&half, &none}) {
    for (int i = 0; i < 6; ++i) r->begun(at(0));
    CHECK(r->next(at(1)) == at(1));
  }
  refuse_twice(half, 1, 0.5);
  refuse_twice(none, 1, 0);
  CHECK(half.next(at(9)) == at(9) + 125ms);  // of the 250 ms between two
  CHECK(none.next(at(9)) == at(9));
  half.begun(at(9.125));
  CHECK(half.next(at(9.125)) == at(9.375));
}

TEST_CASE("idle gates are forgotten, one in use is not", "[s3][throttling]") {
  virtual_loop loop;
  request_gates& gates = request_gates::of(loop);
  const std::shared_ptr<request_gate> limited = gates.gate("busy");
  const request_gate::turn t = block_on(loop, limited->enter());
  limited->refused(t, loop.now(), 0);
  limited->refused(t, loop.now(), 0);
  for (int i = 0; i < 1000; ++i) gates.gate(std::to_string(i));
  CHECK(gates.size() < 300);
  CHECK(gates.gate("busy") == limited);
  CHECK(gates.gate("other") != limited);
}

TEST_CASE("every request passes the gate of what the store counts together", "[s3][throttling]") {
  s3_server::background server;
  server.put("b", "train/k", std::string(1000, 'x'));
  server.put("b", "train/l", std::string(1000, 'x'));
  s3::config_options o;
  o.endpoint = server.endpoint();
  o.retry.throttling_base = 10us;
  const s3::client c(s3::config(o), s3::credentials("test-key", "test-secret"));
  const s3::session s(s3::config(o), std::make_shared<s3::fixed_credentials>(s3::credentials("k", "s")),
                      http::transport_options());
  const auto refusals = [&](executor& ex, const char* method, const char* key) {
    return s3::detail::gate_of(ex, s, s3::operation(method, "b", key))->refusals();
  };
  const auto refuse_once = [&](const char* method) {
    server.faults().add({.method = method, .times = 1}, s3_server::fault::refuse(503, "SlowDown"));
  };
  const auto loop = make_event_loop();
  refuse_once("GET");
  CHECK(block_on(*loop, c.get("s3://b/train/k", 0, 4096, "", slab_pool(64 * KiB))).data.size() == 1000);
  CHECK(refusals(*loop, "GET", "train/any/x") == 1);
  CHECK(refusals(*loop, "GET", "test/x") == 0);
  refuse_once("HEAD");  // whose answer has no code
  CHECK(block_on(*loop, c.head("s3://b/train/k")).size == 1000);
  CHECK(refusals(*loop, "GET", "train/any/x") == 2);
  refuse_once("GET");
  async_generator<shard> listed = c.list("s3://b/train/").generator();
  CHECK(block_on(*loop, first_of(listed)).has_value());
  CHECK(refusals(*loop, "HEAD", "train/any/x") == 3);
  CHECK(refusals(*loop, "PUT", "train/any/x") == 0);
  refuse_once("PUT");
  block_on(*loop, c.put("s3://b/train/new", bytes::copy("text")));
  CHECK(refusals(*loop, "PUT", "train/any/x") == 1);
  CHECK(refusals(*loop, "GET", "train/any/x") == 3);
}
