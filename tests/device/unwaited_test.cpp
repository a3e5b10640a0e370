// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/to_device.hpp>

#include <deque>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/host_device.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/device/batches.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

namespace {

/// The first of a few batches, and what follows it.
struct one_batch {
  explicit one_batch(int after) {
    device.control().after = after;
    block_on(loop, take(source, got, 1));
    REQUIRE(got.size() == 1);
  }
  device_batch& first() { return got.front(); }
  /// How many batches follow.
  int rest() {
    int n = 0;
    for (;;) {
      std::deque<device_batch> next;
      block_on(loop, take(source, next, 1));
      if (next.empty()) return n;
      ++n;
    }
  }

  const late_device device;
  testing::virtual_loop loop;
  stream<device_batch> source = images(8) | batch(2) | to_device(device, {.slots = 1});
  std::deque<device_batch> got;
};

}  // namespace

#ifndef NDEBUG

TEST_CASE("a batch that is used without waiting for its copy is misuse, in debug builds", "[to_device]") {
  one_batch o(3);
  REQUIRE(o.first().field("label").data() != nullptr);
  SECTION("told by release()") {
    CHECK_THROWS_WITH(o.first().release(user), Contains("used without waiting for its copy"));
    REQUIRE(o.first());
    o.first().wait(user);
    o.first().release(user);
    CHECK(o.rest() == 3);
  }
  SECTION("and where it is dropped, by the next batch") {
    o.got.clear();
    CHECK_THROWS_WITH(o.rest(), Contains("used without waiting for its copy"));
  }
}

#endif

TEST_CASE("no wait is missed where the host waited, or nothing was looked at", "[to_device]") {
  one_batch o(3);
  SECTION("synchronize") {
    o.first().synchronize();
    CHECK(o.first().field("label").data() != nullptr);
  }
  SECTION("ready") {
    while (!o.first().ready()) {
    }
    CHECK(o.first().field("label").data() != nullptr);
  }
  SECTION("a wait behind it") {
    CHECK(o.first().field("label").data() != nullptr);
    o.first().wait(user);
  }
  SECTION("nothing") { CHECK(o.first().host_field("label").data() != nullptr); }
  o.first().release(user);
  o.got.clear();
  CHECK(o.rest() == 3);
}

TEST_CASE("the host's own memory needs no wait", "[to_device]") {
  testing::virtual_loop loop;
  auto source = images(8) | batch(2) | to_device(host_device(), {.slots = 1});
  for (int i = 0; i < 4; ++i) {
    std::deque<device_batch> got;
    block_on(loop, take(source, got, 1));
    REQUIRE(got.size() == 1);
    CHECK(got.front().field("label").as<std::int64_t>()[0] == 2 * i);
  }
}
