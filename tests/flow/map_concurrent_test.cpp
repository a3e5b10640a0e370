// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/map_concurrent.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/census.hpp>
#include <millrace/testing/scripted_source.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace std::chrono_literals;
using mill::testing::scripted_source;
using mill::testing::virtual_loop;

namespace {

using ints = std::vector<int>;

/// Takes 10 ms for even numbers, 1 ms for odd ones.
mill::task<int> slow_if_even(int x) {
  const mill::duration pause = x % 2 == 0 ? 10ms : 1ms;
  co_await mill::sleep_for(pause);
  co_return 10 * x;
}

template <class T>
std::vector<T> run(virtual_loop& loop, mill::stream<T> source) {
  return mill::block_on(loop, mill::collect(std::move(source)));
}

TEST_CASE("results come in the order of their inputs, and the work is done at the same time") {
  virtual_loop loop;
  CHECK(run(loop, mill::iota(4) | mill::map_concurrent(slow_if_even, {.limit = 4})) == ints{0, 10, 20, 30});
  CHECK(loop.elapsed() == 10ms);
}

TEST_CASE("in order of arrival a slow item delays nothing") {
  virtual_loop loop;
  CHECK(run(loop, mill::iota(5) | mill::map_concurrent(slow_if_even, {.limit = 5, .order = mill::order::arrival})) ==
        ints{10, 30, 0, 20, 40});
  CHECK(loop.elapsed() == 10ms);
}

TEST_CASE("the limit counts work begun and results not taken") {
  virtual_loop loop;
  const bool ordered = GENERATE(true, false);
  const std::size_t limit = GENERATE(1, 2, 3, 7);
  std::size_t pulled = 0;
  std::size_t taken = 0;
  std::size_t most = 0;
  auto count = mill::map([&](int x) {
    ++pulled;
    most = std::max(most, pulled - taken);
    return x;
  });
  auto source = mill::iota(40) | count |
                mill::map_concurrent(slow_if_even,
                                     {.limit = limit, .order = ordered ? mill::order::ordered : mill::order::arrival});
  auto consume = [&]() -> mill::task<void> {
    while (std::optional<int> x = co_await source.next()) {
      ++taken;
      const mill::duration pause = taken % 3 == 0 ? 50ms : 0ms;
      co_await mill::sleep_for(pause);  // the stage works on meanwhile
    }
  };
  mill::block_on(loop, consume());
  CHECK(taken == 40);
  CHECK(most == limit);
}

TEST_CASE("work goes on while the consumer does not ask") {
  virtual_loop loop;
  scripted_source<int> script;
  for (int i = 0; i < 10; ++i) script.item(i, 1ms);
  auto source = script.open() | mill::map_concurrent(slow_if_even, {.limit = 4});
  auto consume = [&]() -> mill::task<void> {
    (void)co_await source.next();
    co_await mill::sleep_for(1s);
  };
  mill::block_on(loop, consume());
  CHECK(script.given() == 5);  // one taken, four held
}

TEST_CASE("a result that is not taken counts against the limit") {
  virtual_loop loop;
  scripted_source<int> script;
  for (int i = 0; i < 20; ++i) script.item(i);
  auto source = script.open() | mill::map_concurrent(slow_if_even, {.limit = 3});
  auto ask = [&]() -> mill::task<void> { (void)co_await source.next(); };
  auto body = [&]() -> mill::task<void> {
    mill::executor& ex = co_await mill::this_executor();
    {
      mill::spawned<void> asking(ex, ask());
      co_await mill::sleep_for(1ms);
    }  // dropped while it waits; the result comes all the same
    co_await mill::sleep_for(1s);
    CHECK(script.given() == 3);
    std::optional<int> first = co_await source.next();
    CHECK(*first == 0);
  };
  mill::block_on(loop, body());
}

TEST_CASE("a failure is thrown in its turn, after the results before it, and stops the pulling") {
  virtual_loop loop;
  scripted_source<int> script;
  for (int i = 0; i < 30; ++i) script.item(i);
  auto fail_at_3 = [](int x) -> mill::task<int> {
    const mill::duration pause = x == 3 ? 1ms : 10ms;
    co_await mill::sleep_for(pause);
    if (x == 3) throw std::runtime_error("three");
    co_return x;
  };
  auto source = script.open() | mill::map_concurrent(fail_at_3, {.limit = 5});
  ints seen;
  std::string message;
  auto consume = [&]() -> mill::task<void> {
    try {
      while (std::optional<int> x = co_await source.next()) {
        seen.push_back(*x);
        co_await mill::sleep_for(20ms);  // there is room for more work now
      }
    } catch (const std::runtime_error& e) {
      message = e.what();
    }
    const bool more = (co_await source.next()).has_value();
    if (more) message += " and more";
  };
  mill::block_on(loop, consume());
  CHECK(seen == ints{0, 1, 2});
  CHECK(message == "three");
  CHECK(script.given() == 5);
  CHECK(loop.elapsed() == 70ms);
}

TEST_CASE("an error of the source comes after everything that was begun") {
  virtual_loop loop;
  const auto o = GENERATE(mill::order::ordered, mill::order::arrival);
  scripted_source<int> script;
  script.item(0).item(1).fail(std::make_exception_ptr(std::runtime_error("source")));
  auto source = script.open() | mill::map_concurrent(slow_if_even, {.limit = 5, .order = o});
  std::size_t seen = 0;
  std::string message;
  auto consume = [&]() -> mill::task<void> {
    try {
      while (std::optional<int> x = co_await source.next()) ++seen;
    } catch (const std::runtime_error& e) {
      message = e.what();
    }
  };
  mill::block_on(loop, consume());
  CHECK(seen == 2);
  CHECK(message == "source");
}

TEST_CASE("dropping the generator drops the work and the source") {
  virtual_loop loop;
  mill::testing::census before(loop);
  scripted_source<int> script;
  script.item(1).item(0).item(2).never();
  {
    auto source = script.open() | mill::map_concurrent(slow_if_even, {.limit = 8});
    auto consume = [&]() -> mill::task<void> { (void)co_await source.next(); };
    mill::block_on(loop, consume());
    CHECK(script.open_now());
    CHECK(loop.timers() == 2);
  }
  CHECK(!script.open_now());
  CHECK(before.difference() == "");
}

TEST_CASE("a finished item and its input are not held") {
  virtual_loop loop;
  mill::testing::lifetime life;
  auto by_reference = [](const mill::testing::tracked& t) -> mill::task<int> {
    co_await mill::sleep_for(1ms);
    co_return static_cast<int>(t.value());
  };
  auto source = mill::iota(3) | mill::map([&](int x) { return mill::testing::tracked(life, x); }) |
                mill::map_concurrent(by_reference, {.limit = 3});
  auto consume = [&]() -> mill::task<void> {
    (void)co_await source.next();
    co_await mill::sleep_for(1s);
  };
  mill::block_on(loop, consume());
  CHECK(life.made() == 3);
  CHECK(life.live() == 0);
  CHECK(life.errors() == 0);
}

TEST_CASE("the bound in bytes counts inputs, and results as large as the largest so far") {
  virtual_loop loop;
  std::size_t running = 0;
  std::size_t most = 0;
  auto grow = [&](std::string s) -> mill::task<std::string> {
    ++running;
    co_await mill::sleep_for(1ms);
    --running;
    co_return s + s + s;
  };
  auto source = mill::iota(50) | mill::map([](int) { return std::string(100, 'x'); }) |
                mill::map_concurrent(grow, {.limit = 16, .bytes = 2000});
  std::size_t seen = 0;
  auto consume = [&]() -> mill::task<void> {
    while (std::optional<std::string> s = co_await source.next()) {
      ++seen;
      if (seen > 16) most = std::max(most, running);
      co_await mill::sleep_for(20ms);
      if (seen > 16) most = std::max(most, running);
    }
  };
  mill::block_on(loop, consume());
  CHECK(seen == 50);
  CHECK(most <= 5);  // (2000 - held) / (100 + 300)
}

struct unsized {
  explicit unsized(int x) : value(x) {}
  int value;
};
std::size_t byte_size(const unsized& item) {
  if (item.value == 2) throw std::runtime_error("no size");
  return 1;
}
mill::task<unsized> make_unsized(int x) { co_return unsized(x); }
mill::task<std::string> told(mill::stream<unsized> source) {
  std::string log;
  try {
    while (std::optional<unsized> item = co_await source.next()) log += std::to_string(item->value);
  } catch (const std::runtime_error& e) {
    log += e.what();
  }
  co_return log;
}

TEST_CASE("a byte_size() that throws is a failure of its result") {
  virtual_loop loop;
  const mill::failure_policy forgiving{.then = mill::on_failure::skip, .report = false};
  CHECK(mill::block_on(loop, told(mill::iota(4) | mill::map_concurrent(make_unsized, {.limit = 2}))) == "01no size");
  CHECK(mill::block_on(loop, told(mill::iota(4) |
                                  mill::map_concurrent(make_unsized, {.limit = 2, .failures = forgiving}))) == "013");
}

TEST_CASE("an item larger than the bound passes alone") {
  virtual_loop loop;
  auto same = [](std::string s) -> mill::task<std::string> {
    co_await mill::sleep_for(1ms);
    co_return s;
  };
  auto source = mill::iota(5) | mill::map([](int) { return std::string(100, 'x'); }) |
                mill::map_concurrent(same, {.limit = 4, .bytes = 10});
  CHECK(run(loop, std::move(source)).size() == 5);
  CHECK(loop.elapsed() == 5ms);
}

TEST_CASE("plain functions run on a pool, in order, with items that can only be moved") {
  virtual_loop loop;
  mill::cpu_pool pool(2);
  auto source =
      mill::iota(200) | mill::map([](int x) { return std::make_unique<int>(x); }) |
      mill::map_concurrent([](std::unique_ptr<int> p) { return std::make_unique<int>(*p + 1); }, {.on = &pool});
  CHECK(source.bounds().back().items == 4);
  const auto all = run(loop, std::move(source));
  REQUIRE(all.size() == 200);
  for (int i = 0; i < 200; ++i) REQUIRE(*all[static_cast<std::size_t>(i)] == i + 1);
}

TEST_CASE("an exception on the pool is thrown in its turn") {
  virtual_loop loop;
  mill::cpu_pool pool(2);
  auto source = mill::iota(20) | mill::map_concurrent(
                                     [](int x) {
                                       if (x == 7) throw std::runtime_error("seven");
                                       return x;
                                     },
                                     {.on = pool});
  int seen = 0;
  std::string message;
  auto consume = [&]() -> mill::task<void> {
    try {
      while (std::optional<int> x = co_await source.next()) {
        seen += *x == seen ? 1 : 100;
      }
    } catch (const std::runtime_error& e) {
      message = e.what();
    }
  };
  mill::block_on(loop, consume());
  CHECK(seen == 7);
  CHECK(message == "seven");
}

TEST_CASE("dropping a stage whose jobs run on a pool leaves nothing behind") {
  virtual_loop loop;
  mill::testing::census before(loop);
  mill::testing::lifetime life;
  {
    mill::cpu_pool pool(2);
    for (int i = 0; i < 50; ++i) {
      mill::testing::tracked captured(life, 5);
      auto source = mill::iota(1000) | mill::map([&](int x) { return mill::testing::tracked(life, x); }) |
                    mill::map_concurrent([captured](mill::testing::tracked t) { return t.value() + captured.value(); },
                                         {.limit = 6, .on = &pool});
      auto consume = [&]() -> mill::task<void> {
        for (int k = 0; k < i; ++k) (void)co_await source.next();
      };
      mill::spawned<void> running(loop, consume());
      loop.run_until([&] { return running.done(); });
    }
    loop.drain();
    CHECK(before.difference() == "");
  }
  CHECK(life.live() == 0);
  CHECK(life.errors() == 0);
}

TEST_CASE("what cannot work is refused when the pipeline is made") {
  mill::cpu_pool pool(1);
  CHECK_THROWS_AS(mill::iota(3) | mill::map_concurrent(slow_if_even, {.on = &pool}), mill::configuration_error);
  // Every place of the limit has memory of its own from the start.
  for (std::size_t limit : {std::size_t(1'000'001), SIZE_MAX}) {
    CHECK_THROWS_WITH(mill::map_concurrent(slow_if_even, {.limit = limit}),
                      Catch::Matchers::Contains("map_concurrent: .limit is beyond a million"));
  }
  CHECK_NOTHROW(mill::map_concurrent(slow_if_even, {.limit = 1'000'000}));
}

TEST_CASE("a plain function without a pool is refused on a bare loop, where no runtime has one") {
  virtual_loop loop;
  CHECK_THROWS_WITH(run(loop, mill::iota(3) | mill::map_concurrent([](int x) { return x; })),
                    "map_concurrent: a plain function needs a pool to run on: .on = pool, or a runtime");
}

TEST_CASE("the stage declares its bound") {
  const auto with_size =
      mill::iota(3) | mill::map([](int) { return std::string(); }) |
      mill::map_concurrent([](std::string s) -> mill::task<std::string> { co_return s; }, {.limit = 3, .bytes = 77});
  CHECK(with_size.bounds().back().items == 3);
  CHECK(with_size.bounds().back().bytes == 77);
  const auto without = mill::iota(3) | mill::map_concurrent(slow_if_even);
  CHECK(without.bounds().back().items == 16);
  CHECK(without.bounds().back().bytes == 16 * sizeof(int));
  const auto on_any_pool = mill::iota(3) | mill::map_concurrent([](int x) { return x; });
  CHECK(on_any_pool.bounds().back().items == 2 * mill::cpu_pool::usable_cores());
}

TEST_CASE("a pool that ends before the pipeline ends the stream with a sentence, whatever is forgiven") {
  const auto forgiven = GENERATE(mill::on_failure::rethrow, mill::on_failure::skip);
  virtual_loop loop;
  mill::stream<int> pipeline;
  {
    mill::cpu_pool pool(2);
    mill::map_concurrent_options options;
    options.on = &pool;
    options.failures.then = forgiven;
    pipeline = mill::iota(5) | mill::map_concurrent([](int x) { return x; }, options);
  }
  std::string said;
  try {
    run(loop, std::move(pipeline));
  } catch (const mill::usage_error& e) {
    said = e.what();
  }
  CHECK(said.find("the cpu_pool that a stage works on has ended: it must outlive the pipeline") != std::string::npos);
}

}  // namespace
