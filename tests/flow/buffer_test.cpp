// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/buffer.hpp>

#include <string>

#include <millrace/flow/map.hpp>
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

TEST_CASE("a buffer keeps the order and lets source and consumer work at the same time") {
  virtual_loop loop;
  scripted_source<int> script;
  for (int i = 0; i < 5; ++i) script.item(i, 10ms);
  auto slow = [](int x) -> mill::task<int> {
    co_await mill::sleep_for(10ms);
    co_return x;
  };
  auto source = script.open() | mill::buffer({.items = 2}) | mill::map(slow);
  CHECK(mill::block_on(loop, mill::collect(std::move(source))) == ints{0, 1, 2, 3, 4});
  CHECK(loop.elapsed() == 60ms);
}

TEST_CASE("a buffer pulls without being asked, up to its bound, once it has been asked for the first item") {
  virtual_loop loop;
  scripted_source<int> script;
  for (int i = 0; i < 20; ++i) script.item(i, 1ms);
  auto source = script.open() | mill::buffer({.items = 3});
  auto body = [&]() -> mill::task<void> {
    co_await mill::sleep_for(100ms);
    CHECK(script.given() == 0);
    (void)co_await source.next();
    co_await mill::sleep_for(100ms);
    CHECK(script.given() == 4);
    (void)co_await source.next();
    CHECK(script.given() == 4);
    co_await mill::sleep_for(100ms);
    CHECK(script.given() == 5);
  };
  mill::block_on(loop, body());
}

TEST_CASE("an item that is not taken counts against the bound") {
  virtual_loop loop;
  scripted_source<int> script;
  for (int i = 0; i < 20; ++i) script.item(i, 1ms);
  auto source = script.open() | mill::buffer({.items = 3});
  auto ask = [&]() -> mill::task<void> { (void)co_await source.next(); };
  auto body = [&]() -> mill::task<void> {
    {
      mill::executor& ex = co_await mill::this_executor();
      mill::spawned<void> asking(ex, ask());
      co_await mill::yield_now();
      co_await mill::yield_now();
      CHECK(!asking.done());
    }  // dropped while it waits; the item comes all the same
    co_await mill::sleep_for(100ms);
    CHECK(script.given() == 3);
    std::optional<int> first = co_await source.next();
    CHECK(*first == 0);
  };
  mill::block_on(loop, body());
}

TEST_CASE("a buffer is bounded in bytes") {
  virtual_loop loop;
  scripted_source<std::string> script;
  for (int i = 0; i < 20; ++i) script.item(std::string(100, 'x'), 1ms);
  auto source = script.open() | mill::buffer({.items = 16, .bytes = 450});
  CHECK(source.bounds().back().bytes == 450);
  auto body = [&]() -> mill::task<void> {
    (void)co_await source.next();
    co_await mill::sleep_for(100ms);
  };
  mill::block_on(loop, body());
  CHECK(script.given() == 5);
  CHECK(run_some(loop, source, 100).size() == 19);
}

TEST_CASE("an item larger than the bound in bytes passes alone") {
  virtual_loop loop;
  scripted_source<std::string> script;
  for (int i = 0; i < 5; ++i) script.item(std::string(100, 'x'));
  auto source = script.open() | mill::buffer({.items = 16, .bytes = 1});
  CHECK(run_some(loop, source, 100).size() == 5);
}

TEST_CASE("what came before an error is delivered first") {
  virtual_loop loop;
  scripted_source<int> script;
  script.item(0).item(1).fail(std::make_exception_ptr(std::runtime_error("source")));
  const auto seen = run_to_error(loop, script.open() | mill::buffer());
  CHECK(seen.items == ints{0, 1});
  CHECK(seen.error == "source");
}

TEST_CASE("a buffer drops its source at the end, and everything when it is dropped") {
  virtual_loop loop;
  mill::testing::census before(loop);
  scripted_source<int> script;
  script.item(0);
  {
    auto source = script.open() | mill::buffer();
    CHECK(run_some(loop, source, 2) == ints{0});
    CHECK(!script.open_now());
  }
  scripted_source<int> endless;
  endless.item(0).item(1).never();
  {
    auto source = endless.open() | mill::buffer() | mill::buffer({.items = 1});
    CHECK(run_some(loop, source, 1) == ints{0});
    CHECK(endless.open_now());
  }
  CHECK(!endless.open_now());
  CHECK(before.difference() == "");
}

TEST_CASE("a buffer without room is refused") {
  CHECK_THROWS_AS(mill::buffer({.items = 0}), mill::configuration_error);
}

}  // namespace
