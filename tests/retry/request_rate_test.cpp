// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/retry/request_rate.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
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
using s3::detail::gate_of;
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

/// `count` requests of 10 ms each through a gate; the first `refused` that come to their end are refused.
class crowd {
 public:
  crowd(virtual_loop& loop, request_gate& gate, int count, int refused) : gate_(gate), refused_(refused) {
    for (int i = 0; i < count; ++i) all_.emplace_back(loop, one(i));
  }
  bool done() const {
    return std::all_of(all_.begin(), all_.end(), [](const spawned<void>& s) { return s.done(); });
  }
  void drop(std::size_t i) { all_[i] = spawned<void>(); }
  std::vector<int> order;
  std::vector<std::size_t> under_way;  ///< when each began

 private:
  task<void> one(int i) {
    request_gate::pass p = co_await gate_.enter();
    order.push_back(i);
    under_way.push_back(gate_.under_way());
    co_await sleep_for(10ms);
    if (refused_ > 0) {
      --refused_;
      p.refused();
    } else {
      p.succeeded();
    }
  }
  request_gate& gate_;
  int refused_;
  std::vector<spawned<void>> all_;
};

}  // namespace

TEST_CASE("a gate lets through what its limit allows, in order, and forgets no waiter", "[s3][throttling]") {
  virtual_loop loop;
  request_gate gate;
  crowd first(loop, gate, 16, 16);
  loop.run_until([&] { return first.done(); });
  CHECK(loop.elapsed() == 10ms);
  CHECK(gate.limit() == 8);
  crowd second(loop, gate, 40, 0);
  loop.run_until([&] { return second.order.size() == 8; });
  second.drop(20);  // one that waits
  second.drop(3);   // one that is under way
  loop.run_until([&] { return second.order.size() == 9; });
  second.drop(0);
  loop.run_until(
      [&] { return std::count_if(second.order.begin(), second.order.end(), [](int) { return true; }) == 39; });
  loop.run_until([&] { return gate.under_way() == 0; });
  CHECK(std::is_sorted(second.order.begin(), second.order.end()));
  CHECK(*std::max_element(second.under_way.begin(), second.under_way.end()) < 16);
  CHECK(second.under_way.front() == 1);
  CHECK(gate.limit() > 8);
}

TEST_CASE("a grant that is dropped before it runs goes to the next", "[s3][throttling]") {
  virtual_loop loop;
  request_gate gate;
  crowd refused(loop, gate, 2, 2);
  loop.run_until([&] { return refused.done(); });
  REQUIRE(gate.limit() == 1);
  crowd waiting(loop, gate, 3, 0);
  loop.run_until([&] { return waiting.order.size() == 1; });
  waiting.drop(0);  // the second has its grant now, and has not run
  waiting.drop(1);
  loop.run_until([&] { return waiting.order.size() == 2; });
  CHECK(waiting.order == std::vector<int>{0, 2});
  waiting.drop(2);
  CHECK(gate.under_way() == 0);
}

TEST_CASE("gates differ by endpoint, bucket and first component; idle ones are forgotten", "[s3][throttling]") {
  virtual_loop loop;
  request_gate& a = gate_of(loop, "e", "b", "train/000.tar");
  CHECK(&a == &gate_of(loop, "e", "b", "train/999/x.tar"));
  CHECK(&a != &gate_of(loop, "e", "b", "test/000.tar"));
  CHECK(&a != &gate_of(loop, "e", "c", "train/000.tar"));
  CHECK(&a != &gate_of(loop, "f", "b", "train/000.tar"));
  CHECK(&a != &gate_of(loop, "e"));
  CHECK(&gate_of(loop, "e") != &gate_of(loop, "f"));
  CHECK(&gate_of(loop, "e", "b", "x.tar") == &gate_of(loop, "e", "b", "y.tar"));
  struct one {
    static task<request_gate::pass> enter(request_gate& g) { co_return co_await g.enter(); }
  };
  request_gate& busy = gate_of(loop, "e", "b", "held/x");
  const request_gate::pass held = block_on(loop, one::enter(busy));
  for (int i = 0; i < 1000; ++i) gate_of(loop, "e", "b", std::to_string(i) + "/x");
  CHECK(request_gates::of(loop).size() < 300);
  CHECK(&busy == &gate_of(loop, "e", "b", "held/y"));
  CHECK(busy.under_way() == 1);
}

namespace {

s3::session session_in(s3::retry_mode mode) {
  s3::config_options o;
  o.endpoint = "http://store:1";
  o.max_attempts = 3;
  o.retries = mode;
  o.retry.throttling_base = 1ms;
  return s3::session(s3::config(o), std::make_shared<s3::fixed_credentials>(s3::credentials("k", "s")),
                     http::transport_options());
}

/// A store that refuses the first `refused` requests; each takes 10 ms.
class busy_store {
 public:
  explicit busy_store(int refused) : refused_(refused) {}
  auto attempt() {
    return [this] { return run(*this); };
  }
  int calls = 0;
  int under_way = 0;
  int most = 0;  ///< under way at a time, of those that it did not refuse

 private:
  static task<int> run(busy_store& s) {
    const int call = ++s.calls;
    ++s.under_way;
    if (call > s.refused_) s.most = std::max(s.most, s.under_way);
    co_await sleep_for(10ms);
    --s.under_way;
    if (call <= s.refused_) throw s3::error(503, "SlowDown", "", "");
    co_return call;
  }
  int refused_;
};

bool all_done(const std::vector<spawned<int>>& all) {
  return std::all_of(all.begin(), all.end(), [](const spawned<int>& s) { return s.done(); });
}

}  // namespace

TEST_CASE("the adaptive mode holds back all requests while the store asks for fewer", "[s3][throttling]") {
  for (const bool adaptive : {false, true}) {
    CAPTURE(adaptive);
    const s3::session s = session_in(adaptive ? s3::retry_mode::adaptive : s3::retry_mode::standard);
    virtual_loop loop;
    busy_store store(32);
    std::vector<spawned<int>> all;
    for (int i = 0; i < 64; ++i) all.emplace_back(loop, s3::with_retries<int>(s, store.attempt()));
    all.erase(all.begin() + 50, all.end());  // some give up while they are under way
    loop.run_until([&] { return all_done(all); });
    for (spawned<int>& one : all) CHECK_NOTHROW(one.take());
    const request_gate& gate = gate_of(loop, "http://store:1");
    CHECK(gate.under_way() == 0);
    CHECK(gate.refusals() == (adaptive ? 32 : 0));
    if (adaptive) CHECK(gate.limit() < 64);
  }
}

TEST_CASE("one request after the other in the adaptive mode waits for nothing but its pause", "[s3][throttling]") {
  const s3::session s = session_in(s3::retry_mode::adaptive);
  virtual_loop loop;
  busy_store store(1);
  for (int i = 0; i < 100; ++i) block_on(loop, s3::with_retries<int>(s, store.attempt()));
  CHECK(store.calls == 101);
  CHECK(store.most == 1);
  CHECK(loop.elapsed() <= 101 * 10ms + 1ms);
  CHECK(gate_of(loop, "http://store:1").limit() == aimd_limit::none);  // lifted again
}

TEST_CASE("many that are held back are let through as the store recovers", "[s3][throttling]") {
  const s3::session s = session_in(s3::retry_mode::adaptive);
  virtual_loop loop;
  busy_store store(100);  // all of the first
  std::vector<spawned<int>> all;
  for (int i = 0; i < 100; ++i) all.emplace_back(loop, s3::with_retries<int>(s, store.attempt()));
  loop.run_until([&] { return store.calls > 100; });
  CHECK(gate_of(loop, "http://store:1").limit() == 50);
  all.erase(all.begin() + 40, all.begin() + 60);  // some give up while they wait: their places go to the others
  loop.run_until([&] { return all_done(all); });
  CHECK(store.most <= 51);
  CHECK(loop.elapsed() < 100ms);
}

TEST_CASE("SlowDown is heard by the gate of the prefix in each mode, by the endpoint's in the adaptive one",
          "[s3][throttling]") {
  s3_server::background server;
  server.put("b", "train/k", std::string(1000, 'x'));
  const std::string endpoint = server.endpoint();
  s3::config_options o;
  o.endpoint = endpoint;
  o.retry.throttling_base = 10us;
  for (const s3::retry_mode mode : {s3::retry_mode::standard, s3::retry_mode::adaptive}) {
    CAPTURE(int(mode));
    server.faults().add({.key = "train/k", .times = 2}, s3_server::fault::refuse(503, "SlowDown"));
    server.faults().add({.key = "new", .times = 2}, s3_server::fault::refuse(503, "SlowDown"));
    o.retries = mode;
    const s3::client c(s3::config(o), s3::credentials("test-key", "test-secret"));
    const auto loop = make_event_loop();
    CHECK(block_on(*loop, c.get("s3://b/train/k", 0, 4096, "", slab_pool(64 * KiB))).data.size() == 1000);
    CHECK(gate_of(*loop, endpoint, "b", "train/").refusals() == 2);
    CHECK(gate_of(*loop, endpoint, "b", "train/").under_way() == 0);
    CHECK(gate_of(*loop, endpoint).refusals() == 0);
    block_on(*loop, c.put("s3://b/new", bytes::copy("text")));
    CHECK(gate_of(*loop, endpoint).refusals() == (mode == s3::retry_mode::adaptive ? 2 : 0));
    CHECK(gate_of(*loop, endpoint).under_way() == 0);
  }
}
