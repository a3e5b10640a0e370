// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/io/timeout.hpp>

#include <memory>
#include <string>

#include <millrace/coro/block_on.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/loop/loops.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

constexpr duration ms(1000000);

task<std::string> slow_text(duration d) {
  co_await sleep_for(d);
  co_return "a text that does not fit the small string";
}
task<void> slow(duration d, bool& ended) {
  co_await sleep_for(d);
  ended = true;
}
task<int> failing(duration d) {
  co_await sleep_for(d);
  throw std::runtime_error("it broke");
}

TEST_CASE("a task in time gives its result", "[io]") {
  testing::virtual_loop loop;
  CHECK(block_on(loop, with_timeout(5 * ms, slow_text(3 * ms))) == "a text that does not fit the small string");
  CHECK(loop.elapsed() == 3 * ms);
  bool ended = false;
  block_on(loop, with_timeout(5 * ms, slow(ms, ended)));
  CHECK(ended);
  CHECK(loop.timers() == 0);
}

TEST_CASE("a task that takes too long is dropped", "[io]") {
  testing::virtual_loop loop;
  bool ended = false;
  CHECK_THROWS_AS(block_on(loop, with_timeout(5 * ms, slow(6 * ms, ended))), timeout_error);
  CHECK(loop.elapsed() == 5 * ms);
  CHECK_FALSE(ended);
  CHECK(loop.timers() == 0);
  CHECK(loop.frames() == 0);
  try {
    block_on(loop, with_timeout(duration(1234567890), slow_text(duration::max())));
    FAIL("no time-out");
  } catch (const timeout_error& e) {
    CHECK(std::string(e.what()) == "timed out after 1234 ms");
  }
}

TEST_CASE("an exception in time passes", "[io]") {
  testing::virtual_loop loop;
  CHECK_THROWS_WITH(block_on(loop, with_timeout(5 * ms, failing(ms))), "it broke");
  CHECK_THROWS_AS(block_on(loop, with_timeout(5 * ms, failing(6 * ms))), timeout_error);
}

TEST_CASE("a result at the very moment counts", "[io]") {
  testing::virtual_loop loop;
  const auto at_once = []() -> task<std::unique_ptr<int>> { co_return std::make_unique<int>(7); };
  CHECK(*block_on(loop, with_timeout(duration(0), at_once())) == 7);
}

TEST_CASE("dropping a time-out drops its task", "[io]") {
  testing::virtual_loop loop;
  bool ended = false;
  { task<void> never = with_timeout(ms, slow(ms, ended)); }
  {
    spawned<void> running(loop, with_timeout(9 * ms, slow(5 * ms, ended)));
    CHECK(loop.frames() == 1);
    turns(loop, 3);
    CHECK(loop.timers() == 2);
  }
  CHECK(loop.timers() == 0);
  CHECK(loop.frames() == 0);
  CHECK_FALSE(ended);
}

TEST_CASE("time-outs work on real loops", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  bool ended = false;
  CHECK_THROWS_AS(block_on(loop, with_timeout(ms, slow(3600000 * ms, ended))), timeout_error);
  block_on(loop, with_timeout(3600000 * ms, slow(ms, ended)));
  CHECK(ended);
}

}  // namespace
