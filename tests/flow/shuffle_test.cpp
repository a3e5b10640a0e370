// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/shuffle.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/testing/census.hpp>
#include <millrace/testing/scripted_source.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace flow_tests;
using namespace std::chrono_literals;
using mill::testing::virtual_loop;

namespace {

ints sorted(ints all) {
  std::sort(all.begin(), all.end());
  return all;
}
ints first_integers(int n) {
  ints all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// What the class comment says, on a vector and without coroutines.
ints reference(const ints& input, std::size_t window, std::uint64_t seed, std::uint64_t epoch, double startup) {
  mill::rng random(seed, epoch, mill::purpose::shuffle);
  const auto first = std::max<std::size_t>(1, static_cast<std::size_t>(startup * static_cast<double>(window)));
  ints held, output;
  std::size_t next = 0;
  auto pull = [&](std::size_t count) {
    for (; count > 0 && next < input.size() && held.size() < window; --count) held.push_back(input[next++]);
  };
  pull(first);
  while (!held.empty()) {
    const auto i = static_cast<std::size_t>(random.below(held.size()));
    output.push_back(held[i]);
    held[i] = held.back();
    held.pop_back();
    pull(2);
  }
  return output;
}

TEST_CASE("the order is the documented function of seed, epoch, options and input") {
  const std::size_t window = GENERATE(1, 2, 10, 64, 1000);
  const double startup = GENERATE(0.0, 0.1, 0.5, 1.0);
  const int items = GENERATE(0, 1, 5, 300);
  const ints input = first_integers(items);
  const auto output =
      run(mill::iota(items) | mill::shuffle({.window = window, .seed = 7, .epoch = 2, .startup = startup}));
  CHECK(output == reference(input, window, 7, 2, startup));
  CHECK(sorted(output) == input);
}

TEST_CASE("the order is the same on every platform") {
  CHECK(run(mill::iota(12) | mill::shuffle({.window = 6, .seed = 7, .epoch = 1, .startup = 0.5})) ==
        ints{0, 1, 4, 2, 5, 10, 6, 3, 9, 8, 11, 7});
}

TEST_CASE("seeds and epochs give different orders") {
  auto order = [](std::uint64_t seed, std::uint64_t epoch) {
    return run(mill::iota(100) | mill::shuffle({.window = 50, .seed = seed, .epoch = epoch}));
  };
  CHECK(order(1, 0) == order(1, 0));
  CHECK(order(1, 0) != order(2, 0));
  CHECK(order(1, 0) != order(1, 1));
  CHECK(order(1, 1) != order(2, 0));
}

TEST_CASE("the order does not depend on timing") {
  const ints expected = run(mill::iota(200) | mill::shuffle({.window = 32, .seed = 3}));
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    virtual_loop loop(seed);
    INFO(loop.seed_text());
    mill::rng random(seed);
    mill::testing::scripted_source<int> script;
    for (int i = 0; i < 200; ++i) script.item(i, mill::duration(static_cast<std::int64_t>(random.below(3)) * 1000));
    auto source = script.open() | mill::shuffle({.window = 32, .seed = 3});
    ints seen;
    auto body = [&]() -> mill::task<void> {
      while (std::optional<int> x = co_await source.next()) {
        seen.push_back(*x);
        if (random.below(4) == 0) co_await mill::sleep_for(2us);
      }
    };
    mill::block_on(loop, body());
    REQUIRE(seen == expected);
  }
}

TEST_CASE("a big window does not delay the first item, and grows while items flow") {
  virtual_loop loop;
  mill::testing::scripted_source<int> script;
  for (int i = 0; i < 1000; ++i) script.item(i);
  auto source = script.open() | mill::shuffle({.window = 100, .startup = 0.1});
  run_some(loop, source, 1);
  CHECK(script.given() == 10);
  run_some(loop, source, 1);
  CHECK(script.given() == 12);
  run_some(loop, source, 89);
  CHECK(script.given() == 190);  // 91 left, 99 held: full again before the next one
  run_some(loop, source, 10);
  CHECK(script.given() == 200);
}

TEST_CASE("unless told otherwise the first item leaves when a tenth of the window is there") {
  virtual_loop loop;
  mill::testing::scripted_source<int> script;
  for (int i = 0; i < 1000; ++i) script.item(i);
  auto source = script.open() | mill::shuffle({.window = 1000});
  run_some(loop, source, 1);
  CHECK(script.given() == 100);
}

TEST_CASE("the window is bounded in bytes") {
  virtual_loop loop;
  mill::testing::scripted_source<std::string> script;
  for (int i = 0; i < 100; ++i) script.item(std::string(100, 'x'));
  auto source = script.open() | mill::shuffle({.window = 50, .bytes = 1000, .startup = 0.5});
  CHECK(source.bounds().back().bytes == 1000);
  run_some(loop, source, 1);
  CHECK(script.given() == 5);
  run_some(loop, source, 20);
  CHECK(script.given() == 30);  // 21 left, 9 held
  CHECK(run_some(loop, source, 1000).size() == 79);
}

TEST_CASE("kept items are compacted") {
  virtual_loop loop;
  mill::slab_pool pool(64 * mill::KiB);
  {
    auto slices = mill::iota(40) | mill::map([&](int) { return pool.acquire().share(10, 100); }) |
                  mill::shuffle({.window = 30, .startup = 1});
    const auto some = run_some(loop, slices, 1);
    CHECK(some[0].size() == 100);
    CHECK(pool.live() == 0);
  }
  CHECK(pool.peak() == 1);
}

struct in_place {
  explicit in_place(int) {}
  bool small = false;
  friend in_place compact_slices(in_place x) {
    x.small = true;
    return x;
  }
};

TEST_CASE("compact_slices() may change the item that it returns") {
  for (const in_place& x : run(mill::iota(3) | mill::map([](int i) { return in_place(i); }) | mill::shuffle())) {
    CHECK(x.small);
  }
}

TEST_CASE("items need only be movable") {
  mill::testing::lifetime life;
  {
    virtual_loop loop;
    auto source = mill::iota(100) | mill::map([&](int x) { return mill::testing::tracked(life, x); }) |
                  mill::shuffle({.window = 20});
    CHECK(run_some(loop, source, 50).size() == 50);
  }
  CHECK(life.live() == 0);
  CHECK(life.copies() == 0);
  CHECK(life.errors() == 0);
}

TEST_CASE("items are spread over the window") {
  // In a full shuffle of n items every item is expected to move by about n / 3.
  const ints output = run(mill::iota(3000) | mill::shuffle({.window = 3000, .startup = 1}));
  double moved = 0;
  for (std::size_t i = 0; i < output.size(); ++i) moved += std::abs(output[i] - static_cast<int>(i));
  CHECK(moved / 3000 > 900);
  CHECK(moved / 3000 < 1100);
}

TEST_CASE("a window may be unbounded") {
  for (const double startup : {0.0, 0.5, 1.0}) {
    const ints all = run(mill::iota(100) | mill::shuffle({.window = SIZE_MAX, .bytes = SIZE_MAX, .startup = startup}));
    CHECK(sorted(all) == first_integers(100));
  }
}

TEST_CASE("an error of the source is thrown at once") {
  virtual_loop loop;
  mill::testing::scripted_source<int> script;
  for (int i = 0; i < 10; ++i) script.item(i);
  script.fail(std::make_exception_ptr(std::runtime_error("source")));
  const auto seen = run_to_error(loop, script.open() | mill::shuffle({.window = 8}));
  CHECK(seen.items.size() < 10);
  CHECK(seen.error == "source");
}

TEST_CASE("shuffle refuses options that cannot be meant") {
  CHECK_THROWS_AS(mill::shuffle({.window = 0}), mill::configuration_error);
  CHECK_THROWS_AS(mill::shuffle({.startup = 1.5}), mill::configuration_error);
  CHECK_THROWS_AS(mill::shuffle({.startup = -0.5}), mill::configuration_error);
}

}  // namespace
