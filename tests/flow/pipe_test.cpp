// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/pipe.hpp>

#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace user {

struct item {
  explicit item(int v) : value(v) {}
  int value;
};

mill::async_generator<int> twice(mill::async_generator<int> source) {
  while (std::optional<int> x = co_await source.next()) {
    co_yield int(*x);
    co_yield int(*x);
  }
}

template <class T>
mill::async_generator<T> same(mill::async_generator<T> source) {
  return source;
}

}  // namespace user

namespace {

template <class Source>
auto run(Source source) {
  mill::testing::virtual_loop loop;
  return mill::block_on(loop, mill::collect(std::move(source)));
}

using ints = std::vector<int>;

TEST_CASE("a generator is piped through a function, a pointer to one, and a stage of the library") {
  CHECK(run(mill::iota(3) | user::twice) == ints{0, 0, 1, 1, 2, 2});
  CHECK(run(mill::iota(3) | &user::twice | mill::map([](int x) { return x + 1; })) == ints{1, 1, 2, 2, 3, 3});
  CHECK(run(mill::iota(3) | user::same<int>) == ints{0, 1, 2});
}

TEST_CASE("the pipe keeps a lambda that is a coroutine with captures") {
  auto source = mill::iota(3);
  auto piped = [&] {
    std::string text(100, 'x');
    return std::move(source) | [text](mill::async_generator<int> in) -> mill::async_generator<std::string> {
      while (std::optional<int> x = co_await in.next()) co_yield text.substr(0, static_cast<std::size_t>(*x));
    };
  }();
  CHECK(run(std::move(piped)) == std::vector<std::string>{"", "x", "xx"});
}

TEST_CASE("a stage that can only be moved is a stage") {
  auto owned = std::make_unique<int>(10);
  auto stage = [p = std::move(owned)](mill::async_generator<int> in) -> mill::async_generator<int> {
    while (std::optional<int> x = co_await in.next()) co_yield *x + *p;
  };
  auto result = mill::iota(2) | std::move(stage) | mill::take(2);
  CHECK(run(std::move(result)) == ints{10, 11});
}

TEST_CASE("stages compose, and a named composition can be used more than once") {
  const auto stages = mill::map([](int x) { return 2 * x; }) | user::twice | mill::filter([](int x) { return x > 0; });
  CHECK(run(mill::iota(3) | stages) == ints{2, 2, 4, 4});
  CHECK(run(mill::iota(2) | stages | mill::take(1)) == ints{2});
  const auto longer = user::twice | (stages | mill::take(3));
  CHECK(run(mill::iota(3) | longer) == ints{2, 2, 2});
}

TEST_CASE("a composition keeps the lambdas in it") {
  auto make = [](std::string text) {
    return mill::map([](int x) { return x; }) |
               [text](mill::async_generator<int> in) -> mill::async_generator<std::string> {
      while (std::optional<int> x = co_await in.next()) co_yield text + std::to_string(*x);
    };
  };
  CHECK(run(mill::iota(2) | make("a long text that is not stored in place ")) ==
        std::vector<std::string>{"a long text that is not stored in place 0",
                                 "a long text that is not stored in place 1"});
}

TEST_CASE("named() gives a stage a line in the stage table and renames the stages of the library") {
  mill::testing::virtual_loop loop;
  mill::stage_recorder recorder;
  auto source = mill::iota(5) | mill::named("double", user::twice) |
                mill::named("odd", mill::filter([](int x) { return x % 2 == 1; })) | mill::batch(2);
  const auto all = mill::block_on({loop, recorder.find_or_add("sink", nullptr)}, mill::collect(std::move(source)));
  CHECK(all == std::vector<ints>{{1, 1}, {3, 3}});
  std::vector<std::string> lines;
  recorder.for_each([&](const mill::stage_record& r) { lines.push_back(r.name + (" " + std::to_string(r.items))); });
  CHECK(lines == std::vector<std::string>{"sink 0", "batch 2", "odd 4", "double 10", "iota 5"});
}

TEST_CASE("a generator lists what its stages declared, sources first") {
  auto hold = [](mill::async_generator<int> in) {
    return mill::stream(user::twice(std::move(in))).named("hold").bounded(7, 70);
  };
  auto source = mill::iota(5) | hold | mill::map([](int x) { return x; }) | mill::named("again", hold) |
                (mill::take(3) | mill::batch(4));
  std::vector<std::string> lines;
  for (const mill::stage_bounds& b : source.bounds()) {
    lines.push_back(b.name + (" " + std::to_string(b.items) + " " + std::to_string(b.bytes)));
  }
  CHECK(lines == std::vector<std::string>{"hold 7 70", "again 7 70", "batch 4 16"});
  CHECK(mill::iota(3).bounds().empty());
}

TEST_CASE("ranges of the library's types still go into the adaptors of the standard library") {
  std::vector<user::item> items;
  for (int x : {1, 2, 3}) items.emplace_back(x);
  std::vector<mill::stage_bounds> bounds(3);
  int sum = 0;
  for (const user::item& i : items | std::views::take(2)) sum += i.value;
  CHECK(sum == 3);
  CHECK(std::ranges::distance(bounds | std::views::drop(1)) == 2);  // millrace's own | is a candidate here
}

TEST_CASE("an empty generator is refused where it is piped") {
  CHECK_THROWS_AS(mill::async_generator<int>() | mill::batch(2), mill::usage_error);
  CHECK_THROWS_AS(mill::stream<int>() | mill::batch(2), mill::usage_error);
}

}  // namespace
