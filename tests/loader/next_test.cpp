// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/pipeline_run.hpp>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/error.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

/// Two numbers; the second one comes when `go` is set. Then the end.
async_generator<int> two(const std::atomic<bool>& go) {
  int first = 1;
  co_yield give(first);
  while (!go.load()) co_await sleep_for(1ms);
  int second = 2;
  co_yield give(second);
}
async_generator<int> never() {
  co_await sleep_for(24h);
  int none = 0;
  co_yield give(none);
}
async_generator<int> broken() {
  int first = 1;
  co_yield give(first);
  throw decode_error("broken on purpose");
}

}  // namespace

TEST_CASE("next() with a time waits no longer, and the run goes on") {
  std::atomic<bool> go{false};
  runtime rt;
  auto run = rt.run(two(go));
  CHECK(run.outcome() == run_outcome::item);
  CHECK(run.next(24h) == 1);
  CHECK(run.outcome() == run_outcome::item);
  for (const duration longest : {duration(-1s), duration(0), duration(1ms), duration(50ms)}) {
    const std::int64_t begun = monotonic_ns();
    CHECK_FALSE(run.next(longest));
    CHECK(run.outcome() == run_outcome::timed_out);
    CHECK(monotonic_ns() - begun >= longest.count());
  }
  CHECK_FALSE(run.stopped());
  CHECK(run.taken() == 1);
  go = true;
  CHECK(run.next(duration::max()) == 2);
  CHECK_FALSE(run.next(24h));
  CHECK(run.outcome() == run_outcome::ended);
  CHECK_FALSE(run.next(0s));
  CHECK(run.outcome() == run_outcome::ended);
}

TEST_CASE("next() tells a stop from the end of the data and from an error") {
  runtime rt;
  {
    auto run = rt.run(never());
    CHECK_FALSE(run.next(1ms));
    CHECK(run.outcome() == run_outcome::timed_out);
    run.stop();
    CHECK_FALSE(run.next(24h));
    CHECK(run.outcome() == run_outcome::stopped);
    CHECK_FALSE(run.next());
    CHECK(run.outcome() == run_outcome::stopped);
  }
  {
    auto run = rt.run(broken());
    CHECK(run.next() == 1);
    CHECK_THROWS_AS(run.next(24h), decode_error);
    CHECK(run.outcome() == run_outcome::ended);
    CHECK_FALSE(run.next(0s));
    CHECK(run.outcome() == run_outcome::ended);
  }
  {
    std::atomic<bool> go{true};
    auto run = rt.run(two(go));
    for (const int i : run) CHECK(i > 0);
    CHECK(run.outcome() == run_outcome::ended);
  }
}

TEST_CASE("what a loop has not shown is what next() with a time gives") {
  std::atomic<bool> go{true};
  runtime rt;
  auto run = rt.run(two(go));
  CHECK(run.begin() != run.end());
  CHECK(run.next(0s) == 1);
  CHECK(run.next(24h) == 2);
}

TEST_CASE("a second thread in next() is an error there, and the first one goes on") {
  std::atomic<bool> go{false};
  runtime rt;
  auto run = rt.run(two(go));
  CHECK(run.next() == 1);
  std::optional<int> second;
  std::thread waits([&] {
    for (bool again = true; again;) {
      try {
        second = run.next();
        again = false;
      } catch (const usage_error&) {  // the other thread was there at that moment
      }
    }
  });
  std::string why;
  while (why.empty()) {
    try {
      run.next(0s);
    } catch (const usage_error& e) {
      why = e.what();
    }
  }
  CHECK_THAT(why, Contains("two threads take items of one run"));
  go = true;
  waits.join();
  CHECK(second == 2);
  CHECK_FALSE(run.next());
}
