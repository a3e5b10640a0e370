// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loop/make_event_loop.hpp>

#include <chrono>
#include <thread>

#include <millrace/coro/block_on.hpp>
#include <millrace/io/sleep.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

task<void> nap() { co_await sleep_for(std::chrono::microseconds(50)); }

void make_and_end_loops() {
  for (int i = 0; i < 200; ++i) {
    const owned<event_loop> loop = make_event_loop();
    block_on(*loop, nap());
  }
}

}  // namespace

// A ring often lies where one of the other thread lay before: the thread sanitizer must know that it is another one.
TEST_CASE("loops that two threads make and end by themselves share nothing") {
  std::thread other(make_and_end_loops);
  make_and_end_loops();
  other.join();
  SUCCEED();
}
