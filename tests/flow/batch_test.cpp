// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/batch.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/pipeline_run.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace flow_tests;
using Catch::Matchers::Contains;

namespace {

mill::async_generator<std::string> strings(int n) {
  for (int i = 0; i < n; ++i) co_yield std::string(100, 'x');
}

mill::stage_bounds last_of(const std::vector<mill::stage_bounds>& all) {
  REQUIRE(!all.empty());
  return all.back();
}

TEST_CASE("a batch declares what its items take at most") {
  const auto stated = strings(5) | mill::batch(2, {.bytes = 1000});
  CHECK(last_of(stated.bounds()).items == 2);
  CHECK(last_of(stated.bounds()).bytes == 1000);
  // Items of a fixed size need no statement.
  const auto numbers = mill::iota(5) | mill::batch(2);
  CHECK(last_of(numbers.bounds()).items == 2);
  CHECK(last_of(numbers.bounds()).bytes == 2 * sizeof(int));
  const auto unknown = strings(5) | mill::batch(2);
  CHECK(last_of(unknown.bounds()).items == 2);
  CHECK(last_of(unknown.bounds()).bytes == 0);
}

/// Its size says nothing about the memory that it holds.
struct frame {
  frame() : pixels(10000) {}
  std::vector<char> pixels;
};

TEST_CASE("a type that does not tell its bytes has those that are stated, or none") {
  const auto frames = [] { return mill::iota(5) | mill::map([](int) { return frame(); }); };
  CHECK(last_of((frames() | mill::batch(2, {.bytes = 20000})).bounds()).bytes == 20000);
  CHECK(last_of((frames() | mill::batch(2)).bounds()).bytes == 0);
}

TEST_CASE("a statement of bytes is for the budget, and cuts no batch short") {
  const auto all = run(strings(5) | mill::batch(2, {.bytes = 1}));
  REQUIRE(all.size() == 3);
  CHECK(all[0].size() == 2);
  CHECK(all[2].size() == 1);
}

/// An item that knows its epoch.
struct of_epoch {
  explicit of_epoch(int i) : number(i) {
    mark.known = true;
    mark.epoch = static_cast<std::uint64_t>(i / 3);
    mark.last = i % 3 == 2;
  }
  int number;
  mill::epoch_mark mark;
  friend mill::epoch_mark mark_of(const of_epoch& i) noexcept { return i.mark; }
};
mill::async_generator<of_epoch> of_two_epochs(int& made) {
  for (int i = 0; i < 6; ++i) {
    made = i + 1;
    of_epoch item(i);
    co_yield item;
  }
}

TEST_CASE("the last batch of an epoch comes before an item of the next epoch is asked for") {
  mill::testing::virtual_loop loop;
  int made = 0;
  auto batches = of_two_epochs(made) | mill::batch(2);
  const auto next = [&]() -> mill::task<std::size_t> {
    auto b = co_await batches.next();
    co_return b ? b->size() : 0;
  };
  CHECK(mill::block_on(loop, next()) == 2);
  CHECK(mill::block_on(loop, next()) == 1);
  CHECK(made == 3);
  CHECK(mill::block_on(loop, next()) == 2);
  CHECK(mill::block_on(loop, next()) == 1);
  CHECK(mill::block_on(loop, next()) == 0);
}

TEST_CASE("a budget counts batches, and refuses one that states nothing, by name") {
  const auto stated = strings(5) | mill::buffer({.items = 4, .bytes = 3000}) | mill::batch(2, {.bytes = 1000});
  CHECK_NOTHROW(mill::check_budget(stated.bounds(), 4000));
  CHECK_THROWS_WITH(mill::check_budget(stated.bounds(), 3999), Contains("batch"));
  const auto numbers = mill::iota(5) | mill::batch(2);
  CHECK_NOTHROW(mill::check_budget(numbers.bounds(), 2 * sizeof(int)));
  CHECK_THROWS_AS(mill::check_budget(numbers.bounds(), 2 * sizeof(int) - 1), mill::configuration_error);
  const auto unknown = strings(5) | mill::buffer({.items = 4, .bytes = 3000}) | mill::batch(2);
  CHECK_THROWS_AS(mill::check_budget(unknown.bounds(), SIZE_MAX), mill::configuration_error);
  CHECK_THROWS_WITH(mill::check_budget(unknown.bounds(), SIZE_MAX), Contains("stage batch states no bound in bytes"));
  CHECK_NOTHROW(mill::check_budget(unknown.bounds(), 0));  // no budget
}

}  // namespace
