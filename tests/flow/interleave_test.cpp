// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/interleave.hpp>

#include <algorithm>
#include <string>

#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/census.hpp>
#include <millrace/testing/scripted_source.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace flow_tests;
using namespace std::chrono_literals;
using mill::testing::scripted_source;
using mill::testing::virtual_loop;

namespace {

/// Source n gives n * 100, n * 100 + 1, ...; lengths[n] items, each after a delay.
struct shelf {
  ints lengths;
  mill::duration delay{0};
  std::uint64_t seed = 0;
  mill::stream<mill::async_generator<int>> open() const {
    return mill::iota(static_cast<int>(lengths.size())) |
           mill::map([s = *this](int n) { return play(n, s.lengths[static_cast<std::size_t>(n)], s.delay, s.seed); });
  }
  static mill::async_generator<int> play(int n, int length, mill::duration delay, std::uint64_t seed) {
    mill::rng random(seed, static_cast<std::uint64_t>(n), 0);
    for (int i = 0; i < length; ++i) {
      if (delay.count() > 0) {
        mill::duration pause = delay;
        if (seed != 0) {
          pause = mill::duration(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(delay.count()))));
        }
        co_await mill::sleep_for(pause);
      }
      co_yield n * 100 + i;
    }
  }
};

/// The documented order.
ints in_turn(const ints& lengths, std::size_t width) {
  struct place {
    int source;
    int next;
  };
  std::vector<place> places;
  int next_source = 0;
  const int count = static_cast<int>(lengths.size());
  for (std::size_t i = 0; i < width; ++i) places.push_back(place{-1, 0});
  ints output;
  for (std::size_t turn = 0; !places.empty();) {
    place& p = places[turn];
    while (p.source < 0 || p.next == lengths[static_cast<std::size_t>(p.source)]) {
      if (next_source == count) {
        p.source = -1;
        break;
      }
      p = place{next_source++, 0};
    }
    if (p.source < 0) {
      places.erase(places.begin() + static_cast<std::ptrdiff_t>(turn));
      if (turn == places.size()) turn = 0;
      continue;
    }
    output.push_back(p.source * 100 + p.next++);
    turn = (turn + 1) % places.size();
  }
  return output;
}

TEST_CASE("generators are taken from in turn, and replaced in their place") {
  CHECK(run(shelf{{2, 3, 1, 2}}.open() | mill::interleave({.width = 2})) == ints{0, 100, 1, 101, 200, 102, 300, 301});
  CHECK(run(shelf{{}}.open() | mill::interleave()).empty());
  CHECK(run(shelf{{0, 0, 0, 1, 0}}.open() | mill::interleave({.width = 2})) == ints{300});
}

TEST_CASE("the order in turn depends on contents only") {
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    mill::rng random(seed);
    shelf s;
    s.seed = seed;
    s.delay = mill::duration(1 + static_cast<std::int64_t>(random.below(1000)));
    for (std::uint64_t n = random.below(12); n > 0; --n) s.lengths.push_back(static_cast<int>(random.below(10)));
    const std::size_t width = 1 + random.below(5);
    virtual_loop loop(seed);
    auto source = s.open() | mill::interleave({.width = width, .ahead = 1 + random.below(3)});
    REQUIRE(mill::block_on(loop, mill::collect(std::move(source))) == in_turn(s.lengths, width));
  }
}

TEST_CASE("open generators work at the same time, ahead of the consumer, within the bound") {
  virtual_loop loop;
  auto source = shelf{{5, 5, 5, 5}, 10ms}.open() | mill::interleave({.width = 4});
  CHECK(source.bounds().back().items == 8);
  CHECK(mill::block_on(loop, mill::collect(std::move(source))).size() == 20);
  CHECK(loop.elapsed() == 50ms);

  scripted_source<int> a, b, c;
  for (int i = 0; i < 10; ++i) {
    a.item(i);
    b.item(i);
    c.item(i);
  }
  std::vector<mill::stream<int>> all;
  all.push_back(a.open());
  all.push_back(b.open());
  all.push_back(c.open());
  auto some = mill::from_range(std::move(all)) | mill::interleave({.width = 2, .ahead = 3});
  auto body = [&]() -> mill::task<void> {
    (void)co_await some.next();
    co_await mill::sleep_for(1s);
  };
  mill::block_on(loop, body());
  CHECK(a.given() == 4);
  CHECK(b.given() == 3);
  CHECK(c.given() == 0);
}

TEST_CASE("in order of arrival a slow generator delays only itself") {
  virtual_loop loop;
  scripted_source<int> slow, fast, later;
  slow.item(1, 100ms);
  for (int i = 10; i < 15; ++i) fast.item(i, 1ms);
  later.item(20, 1ms);
  std::vector<mill::stream<int>> all;
  all.push_back(slow.open());
  all.push_back(fast.open());
  all.push_back(later.open());
  auto source = mill::from_range(std::move(all)) | mill::interleave({.width = 2, .order = mill::order::arrival});
  CHECK(run_some(loop, source, 6) == ints{10, 11, 12, 13, 14, 20});
  CHECK(!fast.open_now());
  CHECK(run_some(loop, source, 6) == ints{1});
}

TEST_CASE("a generator that always has an item starves neither a new one nor an error") {
  virtual_loop loop;
  auto endless = []() -> mill::async_generator<int> {
    for (;;) co_yield 1;
  };
  auto fails = []() -> mill::async_generator<int> {
    co_yield 2;
    throw std::runtime_error("failed");
  };
  std::vector<mill::stream<int>> all;
  all.push_back(endless());
  all.push_back(mill::iota(0));
  all.push_back(fails());
  auto source = mill::from_range(std::move(all)) | mill::interleave({.width = 2, .order = mill::order::arrival});
  int seen = 0;
  std::string message;
  auto body = [&]() -> mill::task<void> {
    try {
      while (std::optional<int> x = co_await source.next()) {
        if (++seen == 100) break;
        co_await mill::sleep_for(1ms);  // so that there is always another item
      }
    } catch (const std::runtime_error& e) {
      message = e.what();
    }
  };
  mill::block_on(loop, body());
  CHECK(message == "failed");
  CHECK(seen < 20);
}

TEST_CASE("an error of one generator comes in its turn and stops the others") {
  virtual_loop loop;
  mill::testing::census before(loop);
  scripted_source<int> good, bad;
  good.item(1).item(2).item(3).never();
  bad.item(10).fail(std::make_exception_ptr(std::runtime_error("bad")));
  {
    std::vector<mill::stream<int>> all;
    all.push_back(good.open());
    all.push_back(bad.open());
    const auto seen = run_to_error(loop, mill::from_range(std::move(all)) | mill::interleave());
    CHECK(seen.items == ints{1, 10, 2});
    CHECK(seen.error == "bad");
  }
  CHECK(!good.open_now());
  CHECK(before.difference() == "");
}

TEST_CASE("an error of the stream of generators comes when the next one is missing") {
  virtual_loop loop;
  const auto o = GENERATE(mill::order::ordered, mill::order::arrival);
  auto open = [](int n) {
    if (n == 2) throw std::runtime_error("cannot open");
    return shelf::play(n, 2, 0ms, 0);
  };
  const auto seen = run_to_error(loop, mill::iota(5) | mill::map(open) | mill::interleave({.width = 3, .order = o}));
  CHECK(seen.error == "cannot open");
  CHECK(seen.items.size() == (o == mill::order::ordered ? 2 : 4));
}

TEST_CASE("dropping the stage drops every generator") {
  virtual_loop loop;
  mill::testing::census before(loop);
  const auto o = GENERATE(mill::order::ordered, mill::order::arrival);
  scripted_source<int> a, b;
  a.item(1).item(2).never();
  b.item(3).never();
  {
    std::vector<mill::stream<int>> all;
    all.push_back(a.open());
    all.push_back(b.open());
    auto source = mill::from_range(std::move(all)) | mill::interleave({.order = o});
    CHECK(run_some(loop, source, 1) == ints{1});
  }
  CHECK(!a.open_now());
  CHECK(!b.open_now());
  CHECK(before.difference() == "");
}

TEST_CASE("merge gives everything as it comes") {
  virtual_loop loop;
  scripted_source<int> a, b;
  a.item(1, 1ms).item(2, 10ms);
  b.item(10, 5ms).item(11, 1ms);
  CHECK(mill::block_on(loop, mill::collect(mill::merge(a.open(), b.open()))) == ints{1, 10, 11, 2});
  CHECK(run(mill::merge(std::vector<mill::stream<int>>())).empty());
  auto fair = run(mill::merge(mill::iota(50), mill::iota(100, 150)));
  CHECK(fair.size() == 100);
  CHECK(std::find(fair.begin(), fair.end(), 100) - fair.begin() < 4);
}

TEST_CASE("merge lists what its sources declared") {
  auto two = mill::merge(shelf{{1}}.open() | mill::interleave({.width = 2, .ahead = 3}), mill::iota(3));
  std::string lines;
  for (const mill::stage_bounds& b : two.bounds()) lines += b.name + (" " + std::to_string(b.items)) + "\n";
  CHECK(lines == "interleave, open sources 2\ninterleave 6\nmerge 2\n");
}

TEST_CASE("options that cannot be meant are refused") {
  CHECK_THROWS_AS(mill::interleave({.width = 0}), mill::configuration_error);
  CHECK_THROWS_AS(mill::interleave({.ahead = 0}), mill::configuration_error);
}

}  // namespace
