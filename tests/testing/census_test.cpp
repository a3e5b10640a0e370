// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/census.hpp>

#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <millrace/base/units.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using mill::testing::census;

namespace {

mill::task<void> sleeper() { co_await mill::sleep_for(1h); }
int open_nothing() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

TEST_CASE("a census counts what a loop holds") {
  mill::testing::virtual_loop loop;
  census before(loop);
  {
    mill::spawned<void> one(loop, sleeper());
    mill::spawned<void> two(loop, sleeper());
    CHECK(before.difference() == "2 frames");
    loop.run_for(0s);
    CHECK(before.difference() == "2 frames, 2 timers");
  }
  CHECK(before.difference() == "");
}

TEST_CASE("a census counts the slabs of a pool, kept by whatever slice") {
  mill::slab_pool pool(4 * mill::KiB);
  const mill::writable_bytes earlier = pool.acquire();
  census before;
  before.count_slabs(pool);
  CHECK(before.difference() == "");
  mill::bytes slice;
  {
    mill::writable_bytes slab = pool.acquire();
    CHECK(before.difference() == "1 slabs");
    slice = slab.share(0, 10);
  }
  CHECK(before.difference() == "1 slabs");
  const mill::writable_bytes another = pool.acquire();
  CHECK(before.difference() == "2 slabs");
  slice = mill::bytes();
  CHECK(before.difference() == "1 slabs");
}

TEST_CASE("a census keeps several pools apart, and a copy of a pool is the pool") {
  const mill::slab_pool a(4 * mill::KiB);
  mill::slab_pool b(8 * mill::KiB);
  census before;
  before.count_slabs(a).count_slabs(b);
  mill::slab_pool copy(a);
  const mill::writable_bytes of_a = copy.acquire();
  const mill::writable_bytes of_b = b.acquire();
  CHECK(before.difference() == "1 slabs, 1 slabs");
}

TEST_CASE("a census counts the descriptors of the process and names those that are new") {
  const int earlier = open_nothing();
  census before;
  before.count_descriptors();
  CHECK(before.difference() == "");
  const int fd = open_nothing();
  CHECK(before.difference() == "1 descriptors (" + std::to_string(fd) + ": /dev/null)");
  const int next = open_nothing();
  CHECK_THAT(before.difference(), Contains("2 descriptors (") && Contains(std::to_string(next) + ": "));
  ::close(next);
  ::close(fd);
  CHECK(before.difference() == "");
  ::close(earlier);
  CHECK(before.difference() == "-1 descriptors");
  CHECK(::dup2(STDIN_FILENO, earlier) == earlier);
  CHECK(before.difference() == "");
  ::close(earlier);
}

TEST_CASE("a descriptor that is new does not make up for one that is gone") {
  const int first = open_nothing();
  const int second = open_nothing();
  ::close(first);
  census before;
  before.count_descriptors();
  const int again = open_nothing();
  CHECK(again == first);
  ::close(second);
  CHECK(before.difference() == "1 descriptors (" + std::to_string(again) + ": /dev/null), -1 descriptors");
  ::close(again);
}

TEST_CASE("everything is reported in one sentence") {
  mill::testing::virtual_loop loop;
  mill::slab_pool pool(4 * mill::KiB);
  census before(loop);
  before.count_slabs(pool).count_descriptors();
  const mill::spawned<void> one(loop, sleeper());
  const mill::writable_bytes slab = pool.acquire();
  const int fd = open_nothing();
  CHECK(before.difference() == "1 frames, 1 slabs, 1 descriptors (" + std::to_string(fd) + ": /dev/null)");
  ::close(fd);
}

TEST_CASE("a census that an exception ends says nothing: the exception is what the test is about") {
  mill::testing::virtual_loop loop;
  mill::spawned<void> left;
  const auto fail = [&] {
    census before(loop);
    left = mill::spawned<void>(loop, sleeper());
    throw std::runtime_error("as a REQUIRE that does not hold");
  };
  CHECK_THROWS_AS(fail(), std::runtime_error);
}
