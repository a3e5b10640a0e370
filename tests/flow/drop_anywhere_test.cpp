// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/map_concurrent.hpp>

// Properties of whole pipelines: whatever the timing, the order of the ready queue and the moment at which everything
// is dropped, ordered stages give the same items, nothing is left behind and no object is destroyed twice.

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/spawned.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/census.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using mill::testing::lifetime;
using mill::testing::tracked;
using mill::testing::virtual_loop;

namespace {

/// Random delays, and an exception with probability 1 / `fault` (0: never). Which calls wait for how long depends on
/// `timing`, what fails only on `faults`.
class chance {
 public:
  chance(std::uint64_t timing, std::uint64_t fault) : random_(timing), fault_(fault) {}
  mill::duration delay() {
    return random_.below(3) == 0 ? mill::duration(0) : mill::duration(static_cast<std::int64_t>(random_.below(50)));
  }
  bool waits() { return random_.below(2) == 0; }
  bool fails(std::uint64_t salt) const { return fault_ != 0 && mill::rng(salt).below(fault_) == 0; }
  mill::rng& random() { return random_; }

 private:
  mill::rng random_;
  std::uint64_t fault_;
};

mill::async_generator<tracked> source(lifetime& life, chance& c, std::int64_t first, std::int64_t count) {
  for (std::int64_t i = first; i < first + count; ++i) {
    if (c.waits()) co_await mill::sleep_for(c.delay());
    if (c.fails(static_cast<std::uint64_t>(i))) throw std::runtime_error("source " + std::to_string(i));
    tracked item(life, i);
    co_yield mill::give(item);
  }
}

/// Work by value, by reference, with and without waiting.
struct work {
  lifetime* life;
  chance* c;
  mill::task<tracked> operator()(tracked item) const { return run(*life, *c, std::move(item)); }
  static mill::task<tracked> run(lifetime& life, chance& c, tracked item) {
    tracked mine(life, 2 * item.value() + 1);
    if (c.waits()) co_await mill::sleep_for(c.delay());
    if (c.fails(static_cast<std::uint64_t>(item.value()) + 1000)) {
      throw std::runtime_error("work " + std::to_string(item.value()));
    }
    co_return std::move(mine);
  }
};

/// Nested concurrent stages in a composition chosen by `shape`.
mill::stream<tracked> pipeline(std::uint64_t shape, lifetime& life, chance& c) {
  mill::rng r(shape);
  auto upto = [&r](std::uint64_t n) { return 1 + static_cast<std::size_t>(r.below(n)); };
  const work f{&life, &c};
  auto open = [&life, &c](const tracked& t) { return source(life, c, t.value() * 100, t.value() % 7); };
  auto sources = source(life, c, 0, 1 + static_cast<std::int64_t>(r.below(8)));
  const std::size_t width = upto(4), ahead = upto(3), items = upto(5), limit1 = upto(5), limit2 = upto(5),
                    window = upto(20);
  auto opened = [&] {
    if (r.below(2) == 0) return std::move(sources) | mill::buffer({.items = items}) | mill::flat_map(open);
    return std::move(sources) | mill::map(open) | mill::interleave({.width = width, .ahead = ahead});
  }();
  auto worked = std::move(opened) | mill::map_concurrent(f, {.limit = limit1}) |
                mill::filter([](const tracked& t) { return t.value() % 3 != 0; }) |
                mill::map_concurrent(f, {.limit = limit2}) | mill::shuffle({.window = window, .seed = shape});
  if (r.below(3) == 0) worked = std::move(worked) | mill::take(5);
  if (r.below(2) == 0) worked = std::move(worked) | mill::buffer({.items = items});
  return worked;
}

struct result {
  std::vector<std::int64_t> values;
  std::string error;
  bool operator==(const result& other) const { return values == other.values && error == other.error; }
};

/// The consumer: takes batches, waits now and then, and throws at item `throw_at`.
mill::task<void> consume(mill::stream<tracked> input, chance& c, result& seen, std::size_t throw_at) {
  auto batches = std::move(input) | mill::batch(3);
  try {
    while (std::optional<std::vector<tracked>> b = co_await batches.next()) {
      for (const tracked& t : *b) seen.values.push_back(t.value());
      if (c.waits()) co_await mill::sleep_for(c.delay());
      if (seen.values.size() >= throw_at) throw std::logic_error("consumer");
    }
  } catch (const std::runtime_error& e) {
    seen.error = e.what();
  }
}

std::uint64_t first_seed() { return virtual_loop::seed_from_environment(0); }

TEST_CASE("ordered pipelines give the same under any timing, errors included") {
  const std::uint64_t first = first_seed();
  for (std::uint64_t shape = first; shape < first + 60; ++shape) {
    CAPTURE(shape);
    std::optional<result> expected;
    for (std::uint64_t timing = 0; timing < 12; ++timing) {
      CAPTURE(timing);
      lifetime life;
      result seen;
      {
        virtual_loop loop(timing);
        chance c(timing, shape % 3 == 0 ? 60 : 0);
        mill::block_on(loop, consume(pipeline(shape, life, c), c, seen, 1000000));
        REQUIRE(loop.frames() == 0);
      }
      REQUIRE(life.live() == 0);
      REQUIRE(life.errors() == 0);
      REQUIRE(life.copies() == 0);
      if (!expected) expected = seen;
      // Batches: an error drops the unfinished one, so what came before it is the same as well.
      REQUIRE(seen.values == expected->values);
      REQUIRE(seen.error == expected->error);
    }
  }
}

TEST_CASE("dropping a pipeline at any moment leaves nothing behind") {
  const std::uint64_t first = first_seed();
  std::size_t dropped_in_flight = 0;
  for (std::uint64_t seed = first; seed < first + 4000; ++seed) {
    CAPTURE(seed);
    lifetime life;
    virtual_loop loop(seed);
    mill::testing::census before(loop);
    chance c(seed, seed % 4 == 0 ? 40 : 0);
    result seen;
    {
      mill::spawned<void> running(loop, consume(pipeline(seed % 500, life, c), c, seen, 1 + c.random().below(60)));
      std::uint64_t steps = c.random().below(120);
      bool idle = false;
      try {
        loop.run_until([&] { return running.done() || steps-- == 0; });
      } catch (const mill::testing::deadlock&) {
        idle = true;
      }
      REQUIRE(!idle);
      if (!running.done()) ++dropped_in_flight;
    }
    loop.drain();
    REQUIRE(before.difference() == "");
    REQUIRE(life.live() == 0);
    REQUIRE(life.errors() == 0);
    REQUIRE(life.copies() == 0);
  }
  CHECK(dropped_in_flight > 2000);
}

TEST_CASE("in order of arrival nothing is lost, doubled or left behind") {
  const std::uint64_t first = first_seed();
  for (std::uint64_t seed = first; seed < first + 300; ++seed) {
    CAPTURE(seed);
    lifetime life;
    result seen;
    {
      virtual_loop loop(seed);
      chance c(seed, 0);
      const work f{&life, &c};
      const std::size_t limit = 1 + c.random().below(6);
      auto both = mill::merge(source(life, c, 0, 20), source(life, c, 100, 10)) |
                  mill::map_concurrent(f, {.limit = limit, .order = mill::order::arrival});
      mill::block_on(loop, consume(std::move(both), c, seen, 1000000));
    }
    std::sort(seen.values.begin(), seen.values.end());
    std::vector<std::int64_t> expected;
    for (std::int64_t i = 0; i < 20; ++i) expected.push_back(2 * i + 1);
    for (std::int64_t i = 100; i < 110; ++i) expected.push_back(2 * i + 1);
    REQUIRE(seen.values == expected);
    REQUIRE(life.live() == 0);
    REQUIRE(life.errors() == 0);
  }
}

}  // namespace
