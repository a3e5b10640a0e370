// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/census.hpp>

#include <new>
#include <utility>

#include "tests/support/catch.hpp"

namespace mill = millrace;
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

}  // namespace
