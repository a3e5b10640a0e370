// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/scripted_source.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace std::chrono_literals;
using mill::testing::scripted_source;
using mill::testing::virtual_loop;

namespace {

TEST_CASE("a script is played: items, delays, an error") {
  virtual_loop loop;
  scripted_source<int> script;
  script.item(1).item(2, 5ms).fail(std::make_exception_ptr(std::runtime_error("no more")), 1ms).item(3);
  auto source = script.open();
  CHECK(script.open_now());
  CHECK(script.asked() == 0);
  std::string log;
  auto body = [&]() -> mill::task<void> {
    try {
      while (std::optional<int> x = co_await source.next()) log += std::to_string(*x);
    } catch (const std::runtime_error& e) {
      log += e.what();
    }
    const std::optional<int> more = co_await source.next();
    if (more) log += " more";
  };
  mill::block_on(loop, body());
  CHECK(log == "12no more");
  CHECK(script.given() == 2);
  CHECK(script.asked() == 3);
  CHECK(loop.elapsed() == 6ms);
  source = mill::stream<int>();
  CHECK(!script.open_now());
}

TEST_CASE("never() waits until the generator is dropped") {
  virtual_loop loop;
  scripted_source<int> script;
  script.item(1).never().item(2);
  {
    auto source = script.open();
    auto body = [&]() -> mill::task<void> {
      while (std::optional<int> x = co_await source.next()) {
      }
    };
    CHECK_THROWS_AS(mill::block_on(loop, body()), mill::testing::deadlock);
    CHECK(script.given() == 1);
  }
  CHECK(!script.open_now());
}

}  // namespace
