// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Items that are there at once, of map, filter and iota: how they pass, fail, let others run, and are dropped.

#include <millrace/flow/map.hpp>

#include <algorithm>
#include <climits>
#include <stdexcept>
#include <string>
#include <vector>

#include <millrace/coro/spawned.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>

#include "tests/coro/support.hpp"
#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace flow_tests;
using namespace std::chrono_literals;
using mill::testing::virtual_loop;

namespace {

/// 0, 1, ... Waits before every third item.
mill::async_generator<int> now_and_then(int last) {
  for (int i = 0; i < last; ++i) {
    if (i % 3 == 2) co_await mill::sleep_for(1ms);
    int item = i;
    co_yield mill::give(item);
  }
}

TEST_CASE("whatever waits, and however small the inline budget is, the items are the same") {
  for (int budget : {1, 2, 3, 7, mill::executor::inline_budget, INT_MAX}) {
    for (bool waits : {false, true}) {
      CAPTURE(budget, waits);
      virtual_loop loop;
      loop.set_inline_budget(budget);
      auto source = waits ? now_and_then(100) : mill::iota(100);
      const auto batches =
          mill::block_on(loop, mill::collect(std::move(source) | mill::map([](int x) { return 3 * x; }) |
                                             mill::filter([](int x) { return x % 2 == 0; }) |
                                             mill::map([](int x) { return std::to_string(x); }) | mill::batch(4)));
      std::vector<std::string> all;
      for (const auto& b : batches) all.insert(all.end(), b.begin(), b.end());
      REQUIRE(all.size() == 50);
      REQUIRE(batches.size() == 13);
      for (int i = 0; i < 50; ++i) CHECK(all[static_cast<std::size_t>(i)] == std::to_string(6 * i));
    }
  }
}

TEST_CASE("what a function throws comes in its place, once, and ends the stream") {
  virtual_loop loop;
  const auto failing = [](int x) {
    if (x == 5) throw std::runtime_error("at 5");
    return x;
  };
  const auto mapped = run_to_error(loop, mill::iota(9) | mill::map(failing) | mill::map([](int x) { return x; }));
  CHECK(mapped.items == ints{0, 1, 2, 3, 4});
  CHECK(mapped.error == "at 5");
  const auto filtered = run_to_error(loop, mill::iota(9) | mill::filter([&](int x) { return failing(x) % 2 == 0; }));
  CHECK(filtered.items == ints{0, 2, 4});
  CHECK(filtered.error == "at 5");
}

TEST_CASE("a filter that leaves everything out lets others run") {
  virtual_loop loop;
  bool enough = false;
  int tested = 0;
  auto others = [&]() -> mill::task<void> {
    for (int i = 0; i < 5; ++i) co_await mill::yield_now();
    enough = true;
  };
  mill::spawned<void> beside(loop, others());
  auto filtered = mill::iota(INT_MAX) | mill::map([](int x) { return x; }) | mill::filter([&](int x) {
                    if (++tested > 10'000) throw std::logic_error("no other coroutine had a turn");
                    return enough || x == 0;
                  });
  CHECK(run_some(loop, filtered, 2).size() == 2);
  CHECK(tested <= 5 * mill::executor::inline_budget);
}

TEST_CASE("every stage that an item passes costs the inline budget a hop") {
  virtual_loop loop;
  int calls = 0;
  int most = 0;
  const auto same = mill::map([](int x) { return x; });
  auto ten = mill::iota(INT_MAX) | mill::map([&calls](int x) {
               ++calls;
               return x;
             }) |
             same | same | same | same | same | same | same | same;
  auto watch = [&]() -> mill::task<void> {
    for (int before = 0;;) {
      co_await mill::yield_now();
      most = std::max(most, calls - before);
      before = calls;
    }
  };
  mill::spawned<void> beside(loop, watch());
  SECTION("items") { CHECK(run_some(loop, ten, 1000).size() == 1000); }
  SECTION("batches") {
    auto batches = std::move(ten) | mill::batch(1000);
    CHECK(run_some(loop, batches, 1).size() == 1);
  }
  CHECK(most >= mill::executor::inline_budget / 10 - 1);  // ten hops an item: iota and nine maps
  CHECK(most <= mill::executor::inline_budget / 10 + 1);
}

TEST_CASE("a result that is not taken is gone when the next one is asked for") {
  using test_item = mill::test::tracked;
  test_item::reset();
  const bool on_account = GENERATE(false, true);
  {
    virtual_loop loop;
    mill::stage_recorder recorder;
    mill::test::gate never;
    auto source = [&]() -> mill::async_generator<int> {
      for (int i = 0;; ++i) {
        if (i == 4) co_await never.wait();
        int item = i;
        co_yield mill::give(item);
      }
    };
    mill::stream<test_item> results =
        source() | mill::map([](int x) { return test_item(x); }) | mill::filter([](const test_item&) { return true; });
    int seen = 0;
    auto look = [&]() -> mill::task<void> {
      while (test_item* item = co_await results.next_in_place()) {
        CHECK(item->value == seen);
        CHECK(test_item::live == 1);
        ++seen;
      }
    };
    {
      mill::spawned<void> looking({loop, on_account ? recorder.find_or_add("sink", nullptr) : nullptr}, look());
      mill::test::run_until_idle(loop);
      CHECK(never.waited_for());
      CHECK(seen == 4);
      CHECK(test_item::live == 0);
    }
    results = {};
  }
  CHECK(test_item::clean());
}

TEST_CASE("a pipeline dropped between two items leaves nothing behind") {
  using test_item = mill::test::tracked;
  test_item::reset();
  for (std::size_t taken = 0; taken < 6; ++taken) {
    virtual_loop loop;
    auto results = mill::iota(100) | mill::map([](int x) { return test_item(x); }) |
                   mill::map([](test_item x) { return test_item(x.value + 1); });
    CHECK(run_some(loop, results, taken).size() == taken);
  }
  CHECK(test_item::clean());
}

mill::async_generator<int> asking_downstream(mill::stream<int>*& downstream) {
  for (int n = 0;; ++n) {
    int item = n;
    co_yield mill::give(item);
    if (n == 4) (void)co_await downstream->next();
  }
}

TEST_CASE("a source that asks the stage above it is refused with a sentence") {
  virtual_loop loop;
  mill::stream<int>* top = nullptr;
  auto g = asking_downstream(top) | mill::map([](int x) { return x; });
  top = &g;
  CHECK_THROWS_WITH(run_some(loop, g, 10), Catch::Matchers::Contains("one consumer and one outstanding next()"));
}

TEST_CASE("a function of map that asks its own stage for an item is refused with a sentence") {
  virtual_loop loop;
  mill::stream<std::string>* own = nullptr;
  auto g = mill::iota(9) | mill::map([&own](int x) {
             virtual_loop inner;
             if (x == 4) (void)run_some(inner, *own, 1);
             return std::to_string(x);
           });
  own = &g;
  CHECK_THROWS_WITH(run_some(loop, g, 9), Catch::Matchers::Contains("moved to another executor"));
}

}  // namespace
