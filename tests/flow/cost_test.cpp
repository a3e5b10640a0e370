// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/pipe.hpp>

// What an item may cost: no allocation in the plain stages, no stack that grows with the number of items.

#include <cstddef>
#include <optional>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/replaced_new.hpp"

namespace mill = millrace;
using mill::testing::virtual_loop;

namespace {
std::size_t allocations = 0;
}

bool millrace::test::allocation_fails() noexcept {
  ++allocations;
  return false;
}

namespace {

/// Counts items, and allocations from the `from`-th item on.
struct counter {
  std::size_t items = 0;
  std::size_t allocated = 0;
};
template <class T>
mill::task<void> count(mill::stream<T> source, std::size_t from, counter& result) {
  std::size_t before = 0;
  for (;;) {
    if (result.items == from) before = allocations;
    std::optional<T> item = co_await source.next();
    if (!item) break;
    ++result.items;
  }
  result.allocated = allocations - before;
}
template <class T>
counter count_all(mill::stream<T> source, std::size_t from = 0) {
  virtual_loop loop;
  counter result;
  mill::block_on(loop, count(std::move(source), from, result));
  return result;
}

auto plus_one = [](int x) { return x + 1; };
auto nearly_all = [](int x) { return x % 10 != 0; };

TEST_CASE("map, filter, take and iota allocate nothing per item, batch once per batch") {
  if (MILLRACE_ASAN || MILLRACE_TSAN) MILLRACE_SKIP("allocations are not counted under this sanitizer");
  auto plain =
      mill::iota(10000) | mill::map(plus_one) | mill::filter(nearly_all) | mill::map(plus_one) | mill::take(5000);
  const counter c = count_all(std::move(plain), 10);
  CHECK(c.items == 5000);
  CHECK(c.allocated == 0);

  auto batches = mill::iota(10000) | mill::map(plus_one) | mill::filter(nearly_all) | mill::batch(100);
  const counter b = count_all(std::move(batches), 10);
  CHECK(b.items == 90);
  CHECK(b.allocated <= 81);  // one more is begun before the end is known
}

TEST_CASE("a million items through ten stages need no deeper stack than one", "[slow]") {
  auto ten = mill::map(plus_one) | mill::filter([](int) { return true; }) | mill::map(plus_one) |
             mill::filter([](int) { return true; }) | mill::map(plus_one) | mill::take(1000000) | mill::map(plus_one) |
             mill::filter([](int) { return true; }) | mill::map(plus_one) | mill::map(plus_one);
  CHECK(count_all(mill::iota(1000000) | ten).items == 1000000);
}

TEST_CASE("items that are rejected, and empty inner streams, need no stack either") {
  CHECK(count_all(mill::iota(1000000) | mill::filter([](int x) { return x < 0; })).items == 0);
  auto nothing = [](int) -> mill::async_generator<int> { co_return; };
  CHECK(count_all(mill::iota(200000) | mill::flat_map(nothing)).items == 0);
}

TEST_CASE("stages that work ahead need no stack either") {
  auto ready = [](int x) -> mill::task<int> { co_return x; };
  auto many = mill::iota(100000) | mill::buffer() | mill::map_concurrent(ready, {.limit = 4}) |
              mill::shuffle({.window = 100}) | mill::buffer({.items = 1}) | mill::map(ready);
  CHECK(count_all(std::move(many)).items == 100000);
}

}  // namespace
