// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// How the readers of one store share its requests, and what they learn of it together.

#include <millrace/retry/detail/store_host.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/known_hosts.hpp"

using namespace millrace;
using millrace::testing::virtual_loop;
using namespace std::chrono_literals;
using millrace::detail::host_share;

namespace {

constexpr host_share::bounds usual{.bytes = 128 * MiB, .longest = 8 * MiB, .requests = 64};

coroutine_context context_of(executor& ex) {
  const auto ask = []() -> task<coroutine_context> { co_return co_await this_context(); };
  return block_on(ex, ask());
}

/// Reads as many parts at a time as it may, each of which takes 100 ms to its first byte and then 50 MB/s.
class reader {
 public:
  reader(const coroutine_context& here, const std::string& host, const host_share::bounds& b = usual)
      : share(here, host, b) {}

  void begin(bool waits) {
    while (share.may_begin(waits)) requests.push_back(share.begin());
  }
  /// What a part takes where nothing limits it.
  duration alone() const {
    return 100ms + duration(static_cast<std::int64_t>(static_cast<double>(share.part()) / 50e6 * 1e9));
  }
  /// The first `n` of its requests have come, each after `total`.
  void finish(std::size_t n, time_point now, duration total) {
    for (; n > 0 && !requests.empty(); --n) {
      requests.front().finished(now, {.bytes = share.part(), .first = 100ms, .total = total});
      requests.pop_front();
    }
  }
  void finish(std::size_t n, time_point now) { finish(n, now, alone()); }
  /// Reads until the host's number is its bound, or so many fill the link.
  void learn(time_point& now, std::size_t link = 1000) {
    for (int i = 0; i < 2000; ++i) {
      begin(true);
      const auto n = static_cast<std::int64_t>(requests.size());
      const auto fill = static_cast<std::int64_t>(link);
      const duration took = alone() * std::max(n, fill) / fill;
      now += took / n;
      finish(1, now, took);
    }
    requests.clear();
  }

  host_share share;
  std::deque<host_share::request> requests;
};

TEST_CASE("a host's figures say what was measured, what was chosen and what the limit is") {
  virtual_loop loop;
  test::known_hosts runtime(loop);
  const coroutine_context here = context_of(loop);
  const auto figures = [&](const std::string& host, const host_share::bounds& b, std::size_t link) {
    reader r(here, host, b);
    const host_stats before = r.share.host().stats();
    CHECK(!before.measured);
    CHECK(before.limit == read_limit::none);
    CHECK(before.readers == 1);
    time_point now{};
    r.learn(now, link);
    r.begin(true);
    const host_stats s = r.share.host().stats();
    CHECK(s.name == host);
    CHECK(s.measured);
    CHECK(s.requests == r.share.requests());
    CHECK(s.part == r.share.part());
    CHECK(s.in_flight == r.requests.size());
    CHECK(s.first_byte == Approx(0.1).epsilon(0.1));
    CHECK(s.connection_rate == Approx(50e6).epsilon(0.1));
    return s;
  };
  CHECK(figures("requests", {.bytes = 128 * MiB, .longest = 8 * MiB, .requests = 4}, 1000).limit ==
        read_limit::requests);
  CHECK(figures("memory", {.bytes = 16 * MiB, .longest = 8 * MiB, .requests = 64}, 1000).limit == read_limit::memory);
  CHECK(figures("link", {.bytes = 128 * MiB, .longest = 8 * MiB, .requests = 64}, 10).limit == read_limit::link);
  // More than fill the link would bring nothing, even where there may not be more.
  CHECK(figures("few", {.bytes = 128 * MiB, .longest = 8 * MiB, .requests = 16}, 10).limit == read_limit::link);
  CHECK(runtime.hosts()->stats().size() == 4);
  CHECK(runtime.hosts()->stats()[0].name == "few");
}

TEST_CASE("what a host has taught is known to its next reader in the same runtime, and to no other") {
  virtual_loop loop;
  test::known_hosts runtime(loop);
  const coroutine_context here = context_of(loop);
  time_point now{};
  std::size_t learnt = 0;
  {
    reader first(here, "a");
    CHECK(first.share.requests() == 6);
    CHECK(first.share.part() == 2 * MiB);
    CHECK_FALSE(first.share.has_measured());
    first.learn(now);
    learnt = first.share.requests();
    CHECK(learnt == 64);
  }
  reader second(here, "a");
  CHECK(second.share.has_measured());
  CHECK(second.share.requests() == learnt);
  second.begin(true);
  CHECK(second.requests.size() == learnt);
  CHECK(reader(here, "b").share.requests() == 6);
  CHECK(reader(here, "").share.requests() == 6);
  CHECK(reader(here, "").share.requests() == 6);
}

TEST_CASE("a reader's own bounds hold, whatever others have learnt") {
  virtual_loop loop;
  test::known_hosts runtime(loop);
  const coroutine_context here = context_of(loop);
  time_point now{};
  reader(here, "a").learn(now);
  reader few(here, "a", {.bytes = 4 * MiB, .longest = 512 * KiB, .requests = 3});
  CHECK(few.share.part() == 512 * KiB);
  few.begin(true);
  CHECK(few.requests.size() == 3);
  reader narrow(here, "b", {.bytes = 4 * MiB, .longest = 8 * MiB, .requests = 64});
  narrow.begin(true);
  CHECK(narrow.requests.size() * narrow.share.part() <= 4 * MiB);
}

TEST_CASE("what was learnt long ago is only where the next reader begins") {
  virtual_loop loop;
  test::known_hosts runtime(loop);
  const coroutine_context here = context_of(loop);
  time_point now{};
  reader(here, "a").learn(now);
  now += 10min;
  reader later(here, "a");
  CHECK(later.share.requests() == 64);
  later.begin(true);
  later.finish(1, now);
  CHECK(later.share.requests() == 16);
  CHECK_FALSE(later.share.has_measured());
  later.finish(2, now + 10ms);
  CHECK(later.share.has_measured());
}

TEST_CASE("each of several readers has its share of the number, and a late one gets it as reads end") {
  virtual_loop loop;
  test::known_hosts runtime(loop);
  const coroutine_context here = context_of(loop);
  time_point now{};
  reader training(here, "a");
  training.learn(now, 20);
  const std::size_t all = training.share.requests();
  REQUIRE(all > 20);
  REQUIRE(all < 40);
  training.begin(true);
  CHECK(training.requests.size() == all);
  reader validation(here, "a");
  CHECK(validation.share.requests() == all);
  CHECK(validation.share.host().readers() == 2);
  validation.begin(false);
  CHECK(validation.requests.size() == all / 2);
  for (std::size_t i = 0; i < all; ++i) {
    training.requests.pop_front();
    training.begin(true);
  }
  CHECK(training.requests.size() == all - all / 2);
  CHECK(validation.share.host().in_flight() == all);
}

TEST_CASE("each reader has two reads, even of a host that few are enough for") {
  virtual_loop loop;
  test::known_hosts runtime(loop);
  const coroutine_context here = context_of(loop);
  time_point now{};
  reader one(here, "a");
  one.learn(now, 1);
  REQUIRE(one.share.requests() < 6);
  reader other(here, "a");
  reader third(here, "a");
  one.begin(true);
  other.begin(true);
  third.begin(true);
  CHECK(other.requests.size() == 2);
  CHECK(third.requests.size() == 2);
}

TEST_CASE("what a reader leaves is for the one whose consumer waits") {
  virtual_loop loop;
  test::known_hosts runtime(loop);
  const coroutine_context here = context_of(loop);
  time_point now{};
  reader training(here, "a");
  training.learn(now, 20);
  const std::size_t all = training.share.requests();
  reader validation(here, "a");
  validation.begin(false);
  CHECK(validation.requests.size() == all);
  training.begin(true);  // its share, and it would take more
  CHECK(training.requests.size() == all / 2);
  while (validation.requests.size() > 4) validation.requests.pop_front();  // it needs no more for the moment
  SECTION("the other one asks first") {
    validation.begin(false);
    CHECK(validation.requests.size() == all / 2);  // its share
  }
  SECTION("the one that waits asks first") {
    training.begin(true);
    CHECK(training.requests.size() == all - 4);
    validation.begin(false);
    CHECK(validation.requests.size() == all / 2);
    training.requests.pop_front();
    training.begin(true);
    CHECK(training.requests.size() == all - 5);
  }
  SECTION("one that waits no more claims nothing") {
    training.begin(true);
    training.begin(false);
    while (training.requests.size() > 4) training.requests.pop_front();
    validation.begin(false);
    CHECK(validation.requests.size() == all - 4);
  }
}

TEST_CASE("what comes from a cache teaches nothing of the store") {
  virtual_loop loop;
  test::known_hosts runtime(loop);
  const coroutine_context here = context_of(loop);
  reader r(here, "a");
  for (int i = 0; i < 8; ++i) {
    r.begin(true);
    r.requests.front().finished(time_point(1ms * i), {.bytes = 1 * MiB, .first = 0ms, .total = 1us});
    r.requests.pop_front();
  }
  CHECK_FALSE(r.share.has_measured());
}

TEST_CASE("readers on several threads share one host") {
  virtual_loop loop;
  test::known_hosts runtime(loop);
  const coroutine_context here = context_of(loop);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&here] {
      for (int i = 0; i < 50; ++i) {
        reader r(here, "a");
        time_point now(1ms * i);
        for (int k = 0; k < 20; ++k) {
          r.begin(k % 2 == 0);
          r.finish(1, now += 1ms);
        }
      }
    });
  }
  for (std::thread& each : threads) each.join();
  const reader last(here, "a");
  CHECK(last.share.host().in_flight() == 0);
  CHECK(last.share.host().readers() == 1);
}

TEST_CASE("of many hosts those without readers are forgotten, and no others") {
  detail::store_hosts hosts;
  const std::shared_ptr<detail::store_host> read = hosts.of("read");
  const std::weak_ptr<detail::store_host> left = hosts.of("left");
  CHECK(hosts.of("left") == left.lock());
  for (int i = 0; i < 300; ++i) static_cast<void>(hosts.of(std::to_string(i)));
  CHECK(left.expired());
  CHECK(hosts.of("read") == read);
}

}  // namespace
