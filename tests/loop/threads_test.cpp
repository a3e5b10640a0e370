// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loop/make_event_loop.hpp>

#include <cstdint>
#include <memory>
#include <thread>

#include <millrace/coro/block_on.hpp>
#include <millrace/io/file.hpp>
#include <millrace/loop/detail/thread.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

constexpr int loops_each = 200;

/// Something that goes through the ring.
task<std::uint64_t> size_of_this() {
  file f = co_await file::open("/proc/self/exe");
  co_return co_await f.size();
}

/// How many loops did what they were asked.
int make_and_end_loops() {
  int worked = 0;
  for (int i = 0; i < loops_each; ++i) {
    const std::unique_ptr<event_loop> loop = make_event_loop();
    if (block_on(*loop, size_of_this()) > 0) ++worked;
  }
  return worked;
}

}  // namespace

// A ring often lies where one of the other thread lay before: the thread sanitizer must know that it is another one.
TEST_CASE("loops that two threads make and end by themselves share nothing") {
  int elsewhere = 0;
  std::thread other([&] { elsewhere = make_and_end_loops(); });
  const int here = make_and_end_loops();
  other.join();
  CHECK(here == loops_each);
  CHECK(elsewhere == loops_each);
}
