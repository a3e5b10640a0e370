// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/lifetime.hpp>

#include <new>
#include <utility>

#include <millrace/coro/started.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/census.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace std::chrono_literals;
using mill::testing::lifetime;
using mill::testing::tracked;

namespace {

TEST_CASE("the life of tracked objects is counted") {
  lifetime life;
  {
    tracked a(life, 5);
    tracked b(a);
    tracked c(std::move(a));
    CHECK(life.live() == 3);
    CHECK(a.value() == -1);
    CHECK(b.value() == 5);
    CHECK(c.value() == 5);
  }
  CHECK(life.live() == 0);
  CHECK(life.peak() == 3);
  CHECK(life.made() == 1);
  CHECK(life.copies() == 1);
  CHECK(life.moves() == 1);
  CHECK(life.errors() == 0);
}

TEST_CASE("a double destruction and a use after the end are seen") {
  lifetime life;
  alignas(tracked) unsigned char memory[sizeof(tracked)];
  tracked* volatile object = new (memory) tracked(life, 1);  // volatile: the compiler must not reason about the misuse
  object->~tracked();
  CHECK(life.errors() == 0);
  { tracked copy_of_the_dead(*object); }
  CHECK(life.errors() == 1);
  object->~tracked();
  CHECK(life.errors() == 2);
}

mill::task<void> sleeper() { co_await mill::sleep_for(1h); }

TEST_CASE("a census says what is left") {
  mill::testing::virtual_loop loop;
  mill::testing::census before(loop);
  {
    mill::started<void> one(loop, sleeper());
    mill::started<void> two(loop, sleeper());
    CHECK(before.difference() == "2 frames");
    bool first_turn = true;
    loop.run_until([&] { return !std::exchange(first_turn, false) && loop.timers() == 2; });
    CHECK(before.difference() == "2 frames, 2 timers");
  }
  CHECK(before.difference() == "");
}

}  // namespace
