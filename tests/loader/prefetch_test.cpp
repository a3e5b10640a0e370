// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// How much is made ahead of the training thread, and when it is woken.

#include <millrace/loader/run.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>

#include <millrace/base/clock.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

async_generator<std::string> texts(int n, std::size_t bytes, std::atomic<int>& made) {
  for (int i = 0; i < n; ++i) {
    std::string item(bytes, 'x');
    ++made;
    made.notify_all();
    co_yield give(item);
  }
}

/// The most texts that are ever made ahead of a training thread, which begins when there are `expected`.
int most_ahead(std::size_t bytes, int expected, const run_options& options = {}) {
  std::atomic<int> made{0};
  auto r = run(texts(4 * expected, bytes, made), options);
  for (int now = made; now < expected; now = made) made.wait(now);
  int most = made;
  for (int taken = 1; r.next(); ++taken) most = std::max(most, made - taken);
  return most;
}

/// Each text is made only when the one before was taken: where it is held back, it never is.
async_generator<std::string> one_by_one(int n, std::atomic<int>& taken) {
  for (int i = 0; i < n; ++i) {
    for (int turns = 0; taken < i; ++turns) {
      if (turns == 20'000'000) throw std::runtime_error("what was made is held back");
      co_await yield_now();
    }
    std::string item = std::to_string(i);
    co_yield give(item);
  }
}

/// A source that keeps the loop's thread meanwhile, as a function of the program does.
async_generator<std::string> in_one_turn(int n, std::atomic<int>& taken) {
  for (int i = 0; i < n; ++i) {
    for (const std::int64_t since = monotonic_ns(); taken < i; std::this_thread::yield()) {
      if (monotonic_ns() - since > 10'000'000'000) throw std::runtime_error("what was made is held back");
    }
    std::string item = std::to_string(i);
    co_yield give(item);
  }
}

}  // namespace

TEST_CASE("two items are made ahead, and as many small ones as a MiB has, but at most 1024") {
  CHECK(most_ahead(10, 1024) == 1024);
  CHECK(most_ahead(10'000, 104) == 104);
  CHECK(most_ahead(50'000, 5) == 5);  // 256 KiB
  CHECK(most_ahead(300'000, 2) == 2);
  CHECK(most_ahead(10, 3, {.prefetch = 3}) == 3);
  CHECK(most_ahead(1000, 4, {.prefetch_bytes = 4999}) == 4);
}

TEST_CASE("small items come at once where the pipeline waits for something else after each") {
  std::atomic<int> taken{0};
  auto r = run(one_by_one(2000, taken));
  for (int i = 0; i < 2000; ++i) {
    REQUIRE(r.next() == std::to_string(i));
    ++taken;
  }
  CHECK_FALSE(r.next());
}

TEST_CASE("small items come in time where a function of the pipeline keeps the loop's thread") {
  std::atomic<int> taken{0};
  auto r = run(in_one_turn(1000, taken));
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(r.next() == std::to_string(i));
    ++taken;
  }
  CHECK_FALSE(r.next());
}

TEST_CASE("small items all come, in their order, to threads that wait for each other now and then") {
  for (const bool epoll : {false, true}) {
    auto r = run(iota(40'000) | batch(2), {}, {.force_epoll = epoll});
    int next = 0;
    while (const auto b = r.next()) {
      REQUIRE(b->size() == 2);
      REQUIRE((*b)[0] == next);
      next += 2;
      volatile int step = 0;  // now slower than the pipeline, now faster
      for (int i = 0; i < (next / 2000 % 2) * 3000; ++i) step = step + 1;
    }
    CHECK(next == 40'000);
  }
}
