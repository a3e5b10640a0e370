// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/retry/aimd_limit.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/ops/detail/prefix_gates.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using s3::detail::prefix_gate;
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
  crowd(virtual_loop& loop, prefix_gate& gate, int count, int refused) : gate_(gate), refused_(refused) {
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
    prefix_gate::pass p = co_await gate_.enter();
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
  prefix_gate& gate_;
  int refused_;
  std::vector<spawned<void>> all_;
};

}  // namespace

TEST_CASE("a gate lets through what its limit allows, in order, and loses nobody", "[s3][throttling]") {
  virtual_loop loop;
  prefix_gate gate;
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
  prefix_gate gate;
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

TEST_CASE("gates are told apart by endpoint, bucket and first component; idle ones are forgotten", "[s3][throttling]") {
  s3::detail::prefix_gates gates;
  prefix_gate& a = gates.gate("e", "b", "train/000.tar");
  CHECK(&a == &gates.gate("e", "b", "train/999/x.tar"));
  CHECK(&a != &gates.gate("e", "b", "test/000.tar"));
  CHECK(&a != &gates.gate("e", "c", "train/000.tar"));
  CHECK(&a != &gates.gate("f", "b", "train/000.tar"));
  CHECK(&gates.gate("e", "b", "x.tar") == &gates.gate("e", "b", "y.tar"));
  struct one {
    static task<prefix_gate::pass> enter(prefix_gate& g) { co_return co_await g.enter(); }
  };
  virtual_loop loop;
  prefix_gate& busy = gates.gate("e", "b", "held/x");
  const prefix_gate::pass held = block_on(loop, one::enter(busy));
  for (int i = 0; i < 1000; ++i) gates.gate("e", "b", std::to_string(i) + "/x");
  CHECK(gates.size() < 300);
  CHECK(&busy == &gates.gate("e", "b", "held/y"));
  CHECK(busy.under_way() == 1);
}

TEST_CASE("SlowDown is heard by the gate of the prefix", "[s3][throttling]") {
  s3_server::background server;
  server.put("b", "train/k", std::string(1000, 'x'));
  server.faults().add({.key = "train/k", .times = 2}, s3_server::fault::refuse(503, "SlowDown"));
  const std::string endpoint = server.endpoint();
  s3::config_options o;
  o.endpoint = endpoint;
  o.retry.throttling_base = 10us;
  for (const s3::retry_mode mode : {s3::retry_mode::standard, s3::retry_mode::adaptive}) {
    o.retries = mode;
    const s3::client c(s3::config(o), s3::credentials("test-key", "test-secret"));
    const auto loop = make_event_loop();
    CHECK(block_on(*loop, c.get("s3://b/train/k", 0, 4096, "", slab_pool(64 * KiB))).data.size() == 1000);
    const prefix_gate& gate = s3::detail::prefix_gates::of(*loop).gate(endpoint, "b", "train/");
    CHECK(gate.refusals() == (mode == millrace::s3::retry_mode::standard ? 2 : 0));
    CHECK(gate.under_way() == 0);
  }
}
