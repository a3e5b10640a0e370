// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/sync/scope.hpp>

#include "tests/support/catch.hpp"

#include <memory>
#include <stdexcept>
#include <string>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

task<void> append(std::string& log, duration d, char name, tracked = tracked()) {
  co_await virtual_sleep(d);
  log += name;
}
task<void> fail(duration d, const char* text) {
  if (d > 0ms) co_await virtual_sleep(d);
  throw std::runtime_error(text);
}

}  // namespace

TEST_CASE("a scope ends when its body and all its tasks have ended") {
  testing::virtual_loop loop;
  std::string log;
  tracked::reset();
  struct local {
    static task<void> run(std::string& log) {
      auto body = [&](scope& s) -> task<void> {
        s.spawn([&] { return append(log, 30ms, 'c'); });
        s.spawn([&] { return append(log, 10ms, 'a'); });
        co_await virtual_sleep(20ms);
        log += 'b';
      };
      co_await with_scope(body);
      log += '.';
    }
  };
  block_on(loop, local::run(log));
  CHECK(log == "abc.");
  CHECK(loop.elapsed() == 30ms);
  CHECK(loop.frames() == 0);
  CHECK(tracked::clean());
}

TEST_CASE("an empty scope ends") {
  struct local {
    static task<void> run() {
      auto body = [](scope&) -> task<void> { co_return; };
      co_await with_scope(body);
    }
  };
  testing::virtual_loop loop;
  block_on(loop, local::run());
  CHECK(loop.elapsed() == 0ms);
}

TEST_CASE("the scope keeps callable and arguments as long as the task lives") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static task<void> run(int& total) {
      auto body = [&](scope& s) -> task<void> {
        for (int i = 0; i < 3; ++i) {
          auto captured = std::make_unique<int>(i);
          // a coroutine lambda with a capture: it refers to the closure, which the scope holds
          auto work = [&total, captured = std::move(captured)](tracked t, std::string text) -> task<void> {
            co_await virtual_sleep(5ms);
            total += *captured + t.value + static_cast<int>(text.size());
          };
          s.spawn(std::move(work), tracked(100), std::string(50, 'x'));
        }
        co_return;
      };
      co_await with_scope(body);
    }
  };
  int total = 0;
  block_on(loop, local::run(total));
  CHECK(total == 3 + 3 * 150);
  CHECK(tracked::clean());
}

TEST_CASE("the first exception stops the others and the body, and is rethrown") {
  testing::virtual_loop loop;
  std::string log;
  tracked::reset();
  struct local {
    static task<void> child_fails(std::string& log) {
      auto body = [&](scope& s) -> task<void> {
        s.spawn([&] { return append(log, 30ms, 'x'); });
        s.spawn([] { return fail(10ms, "first"); });
        s.spawn([] { return fail(20ms, "second"); });
        co_return;
      };
      co_await with_scope(body);
    }
    static task<void> child_fails_while_the_body_waits(std::string& log) {
      auto body = [&](scope& s) -> task<void> {
        s.spawn([] { return fail(10ms, "first"); });
        co_await append(log, 1000ms, 'x');
      };
      co_await with_scope(body);
    }
    static task<void> body_fails(std::string& log) {
      auto body = [&](scope& s) -> task<void> {
        s.spawn([&] { return append(log, 30ms, 'x'); });
        co_await virtual_sleep(10ms);
        throw std::runtime_error("first");
      };
      co_await with_scope(body);
    }
    static task<void> child_fails_before_the_body(std::string& log) {
      auto body = [&](scope& s) -> task<void> {
        s.spawn([] { return fail(10ms, "first"); });
        co_await append(log, 20ms, 'x');
        throw std::runtime_error("second");
      };
      co_await with_scope(body);
    }
    static task<void> not_even_a_coroutine(std::string&) {
      auto body = [](scope& s) -> task<void> {
        s.spawn([]() -> task<void> { throw std::runtime_error("first"); });
        co_await virtual_sleep(1000ms);
      };
      co_await with_scope(body);
    }
  };
  SECTION("a task") { CHECK_THROWS_WITH(block_on(loop, local::child_fails(log)), "first"); }
  SECTION("a task, while the body waits") {
    CHECK_THROWS_WITH(block_on(loop, local::child_fails_while_the_body_waits(log)), "first");
  }
  SECTION("the body") { CHECK_THROWS_WITH(block_on(loop, local::body_fails(log)), "first"); }
  SECTION("a task before the body") {
    CHECK_THROWS_WITH(block_on(loop, local::child_fails_before_the_body(log)), "first");
  }
  SECTION("a callable that throws by itself") {
    CHECK_THROWS_WITH(block_on(loop, local::not_even_a_coroutine(log)), "first");
  }
  CHECK(log.empty());
  CHECK(loop.elapsed() <= 10ms);
  CHECK(loop.frames() == 0);
  CHECK(loop.timers() == 0);
  CHECK(tracked::clean());
}

TEST_CASE("a scope counts the errors beside the one that it throws") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static task<void> run(further_errors& further, int failures, std::string& log) {
      auto body = [&](scope& s) -> task<void> {
        for (int i = 0; i < failures; ++i) s.spawn(fail, duration(5ms), i == 0 ? "first" : "another");
        s.spawn(fail, duration(6ms), "too late to be thrown");
        s.spawn([&log] { return append(log, 7ms, 'x'); });
        co_await virtual_sleep(20ms);
      };
      co_await with_scope(further, body);
    }
    static task<void> body_too(further_errors& further) {
      auto body = [](scope& s) -> task<void> {
        s.spawn(fail, duration(0ms), "a task");
        throw std::runtime_error("the body");
        co_return;
      };
      co_await with_scope(further, body);
    }
  };
  std::string log;
  further_errors further;
  CHECK_THROWS_WITH(block_on(loop, local::run(further, 1, log)), "first");
  CHECK(further.count() == 0);
  CHECK_THROWS_WITH(block_on(loop, local::run(further, 4, log)), "first");
  CHECK(further.count() == 3);
  CHECK_THROWS_WITH(block_on(loop, local::body_too(further)), "the body");
  CHECK(further.count() == 4);
  CHECK(log.empty());
  CHECK(tracked::clean());
}

TEST_CASE("tasks may spawn tasks") {
  struct local {
    static task<void> tree(scope& s, int depth, int& count) {
      co_await virtual_sleep(1ms);
      ++count;
      if (depth == 0) co_return;
      s.spawn([&s, depth, &count] { return tree(s, depth - 1, count); });
      s.spawn([&s, depth, &count] { return tree(s, depth - 1, count); });
    }
    static task<void> run(int& count) {
      auto body = [&count](scope& s) -> task<void> {
        s.spawn([&s, &count] { return tree(s, 7, count); });
        co_return;
      };
      co_await with_scope(body);
    }
  };
  testing::virtual_loop loop;
  int count = 0;
  block_on(loop, local::run(count));
  CHECK(count == 255);
  CHECK(loop.elapsed() == 8ms);
}

TEST_CASE("ended tasks do not pile up, and many tasks are cheap") {
  struct local {
    static task<void> run(std::size_t& most) {
      executor& ex = co_await this_executor();
      auto body = [&](scope& s) -> task<void> {
        for (int i = 0; i < 20000; ++i) {
          s.spawn([]() -> task<void> { co_return; });
          if (i % 10 == 0) co_await yield_now();
          if (ex.frames() > most) most = ex.frames();
        }
      };
      co_await with_scope(body);
    }
    static task<void> all_at_once() {
      auto body = [](scope& s) -> task<void> {
        for (int i = 0; i < 100000; ++i) s.spawn([] { return yielding(); });
        co_return;
      };
      co_await with_scope(body);
    }
    static task<void> yielding() { co_await yield_now(); }
  };
  testing::virtual_loop loop;
  std::size_t most = 0;
  block_on(loop, local::run(most));
  CHECK(most < 200);
  block_on(loop, local::all_at_once());
  CHECK(loop.frames() == 0);
}

TEST_CASE("dropping a scope drops everything in it") {
  tracked::reset();
  struct local {
    static task<void> run(std::string& log) {
      tracked outside(1);
      auto body = [&](scope& s) -> task<void> {
        for (int i = 0; i < 5; ++i) s.spawn([&log, i] { return append(log, std::chrono::milliseconds(i + 1), 'x'); });
        co_await append(log, 3ms, 'b');
        s.spawn([&log] { return append(log, 1ms, 'y'); });
        co_await append(log, 3ms, 'b');
      };
      co_await with_scope(body);
      log += '.';
    }
  };
  std::size_t longest = 0;
  for (int turns = 0; turns < 40; ++turns) {
    testing::virtual_loop loop;
    std::string log;
    {
      spawned<void> s(loop, local::run(log));
      run_turns(loop, turns);
      if (log.size() > longest) longest = log.size();
    }
    CHECK(loop.frames() == 0);
    CHECK(loop.timers() == 0);
    CHECK(tracked::clean());
  }
  CHECK(longest == 9);
}
