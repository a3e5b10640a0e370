// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/map.hpp>

#include <memory>
#include <string>

#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/census.hpp>
#include <millrace/testing/scripted_source.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace flow_tests;
using namespace std::chrono_literals;
using mill::testing::lifetime;
using mill::testing::scripted_source;
using mill::testing::tracked;
using mill::testing::virtual_loop;

namespace {

struct aggregate {
  std::string text;
  int number;
};

TEST_CASE("map calls the function once for each item, in order") {
  int calls = 0;
  CHECK(run(mill::iota(4) | mill::map([&calls](int x) {
              ++calls;
              return x * x;
            })) == ints{0, 1, 4, 9});
  CHECK(calls == 4);
  CHECK(run(mill::iota(0) | mill::map([](int x) { return x; })).empty());
}

TEST_CASE("map takes functions, pointers to members, and functions that return references") {
  CHECK(run(mill::iota(3) | mill::map(+[](int x) { return -x; })) == ints{0, -1, -2});
  auto named_numbers = [] { return mill::iota(3) | mill::map([](int x) { return aggregate{std::to_string(x), x}; }); };
  CHECK(run(named_numbers() | mill::map(&aggregate::text)) == std::vector<std::string>{"0", "1", "2"});
  CHECK(run(named_numbers() | mill::map(&aggregate::text) | mill::map(&std::string::size)) ==
        std::vector<std::size_t>{1, 1, 1});
  CHECK(run(named_numbers() | mill::map([](const aggregate& a) -> const std::string& { return a.text; })) ==
        std::vector<std::string>{"0", "1", "2"});
}

TEST_CASE("map awaits a function that returns a task, one item at a time") {
  virtual_loop loop;
  auto slow = [](const std::string& text) -> mill::task<std::string> {
    co_await mill::sleep_for(10ms);
    co_return text + "!";
  };
  auto source =
      mill::iota(3) | mill::map([](int x) { return std::to_string(x) + std::string(50, 'x'); }) | mill::map(slow);
  const auto all = mill::block_on(loop, mill::collect(std::move(source)));
  CHECK(all.back() == "2" + std::string(50, 'x') + "!");
  CHECK(loop.elapsed() == 30ms);
}

TEST_CASE("map and filter pass items that can only be moved, and neither copy nor hold any") {
  lifetime life;
  {
    virtual_loop loop;
    auto source = mill::iota(10) | mill::map([&](int x) { return tracked(life, x); }) |
                  mill::filter([](const tracked& t) { return t.value() % 2 == 0; }) |
                  mill::map([](tracked t) { return t; }) | mill::take(3);
    const auto some = run_some(loop, source, 2);
    CHECK(some.size() == 2);
    CHECK(some[1].value() == 2);
  }
  CHECK(life.copies() == 0);
  CHECK(life.errors() == 0);
  CHECK(life.live() == 0);

  std::vector<std::unique_ptr<int>> pointers;
  for (int i = 0; i < 3; ++i) pointers.push_back(std::make_unique<int>(i));
  const auto all = run(mill::from_range(std::move(pointers)) | mill::filter([](const auto& p) { return *p != 1; }) |
                       mill::map([](std::unique_ptr<int> p) { return std::make_unique<int>(*p * 2); }));
  REQUIRE(all.size() == 2);
  CHECK(*all[1] == 4);
}

TEST_CASE("an exception of the function or of the source ends the stream after the items before it") {
  virtual_loop loop;
  auto throw_at_2 = [](int x) {
    if (x == 2) throw std::runtime_error("two");
    return x;
  };
  auto seen = run_to_error(loop, mill::iota(5) | mill::map(throw_at_2) | mill::filter([](int) { return true; }));
  CHECK(seen.items == ints{0, 1});
  CHECK(seen.error == "two");

  scripted_source<int> script;
  script.item(1).fail(std::make_exception_ptr(std::runtime_error("source")), 5ms);
  seen = run_to_error(loop, script.open() | mill::map(throw_at_2));
  CHECK(seen.items == ints{1});
  CHECK(seen.error == "source");

  auto throw_in_filter = [](int x) -> mill::task<bool> {
    co_await mill::sleep_for(1ms);
    if (x == 2) throw std::runtime_error("filter");
    co_return x == 1;
  };
  seen = run_to_error(loop, mill::iota(5) | mill::filter(throw_in_filter));
  CHECK(seen.items == ints{1});
  CHECK(seen.error == "filter");
}

TEST_CASE("take drops the source with its last item and never asks for one too many") {
  virtual_loop loop;
  scripted_source<int> script;
  script.item(1).item(2).item(3).never();
  auto source = script.open() | mill::take(2);
  CHECK(!run_some(loop, source, 1).empty());
  CHECK(script.open_now());
  CHECK(run_some(loop, source, 1) == ints{2});
  CHECK(!script.open_now());
  CHECK(script.asked() == 2);
  CHECK(run_some(loop, source, 1).empty());

  scripted_source<int> untouched;
  untouched.item(1);
  auto none = untouched.open() | mill::take(0);
  CHECK(run_some(loop, none, 1).empty());
  CHECK(untouched.asked() == 0);
  CHECK(run(mill::iota(2) | mill::take(5)) == ints{0, 1});
}

TEST_CASE("generate calls a function or awaits its task until it has nothing more") {
  int next = 0;
  CHECK(run(mill::generate([&]() -> std::optional<int> {
          if (next == 3) return std::nullopt;
          return next++;
        })) == ints{0, 1, 2});
  virtual_loop loop;
  auto countdown = [n = std::make_unique<int>(3)]() -> std::optional<std::unique_ptr<int>> {
    if (*n == 0) return std::nullopt;
    return std::make_unique<int>((*n)--);
  };
  CHECK(run(mill::generate(std::move(countdown))).size() == 3);
  int tasks = 0;
  auto slowly = [&]() -> mill::task<std::optional<int>> {
    co_await mill::sleep_for(1ms);
    if (tasks == 2) co_return std::nullopt;
    co_return tasks++;
  };
  CHECK(mill::block_on(loop, mill::collect(mill::generate(slowly))) == ints{0, 1});
  CHECK(loop.elapsed() == 3ms);
}

TEST_CASE("iota counts, also not at all") {
  CHECK(run(mill::iota(2, 5)) == ints{2, 3, 4});
  CHECK(run(mill::iota(5, 2)).empty());
  CHECK(run(mill::iota(std::size_t(2))) == std::vector<std::size_t>{0, 1});
}

}  // namespace
