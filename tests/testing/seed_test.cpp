// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A failing test prints the seed with which it fails again.

#include <millrace/testing/jumping_loop.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include <stdexcept>
#include <string>

#include <millrace/coro/block_on.hpp>
#include <millrace/sync/event.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using Catch::Matchers::Contains;
using mill::testing::jumping_loop;
using mill::testing::virtual_loop;

namespace {

mill::task<void> hang() {
  mill::event never;
  co_await never.wait();
}

/// What a loop says when it has nothing to do any more.
template <class Loop>
std::string reproach(Loop& loop) {
  try {
    mill::block_on(loop, hang());
    return "";
  } catch (const mill::testing::deadlock& e) {
    return e.what();
  }
}

/// What `use()` writes to standard error. What it throws is what a test framework throws to leave a test case.
template <class Use>
std::string said(Use&& use) {
  mill::test::captured_stderr captured(mill::test::captured_stderr::into::pipe);
  try {
    use();
  } catch (const std::runtime_error&) {
  }
  return captured.text();
}

[[noreturn]] void fail() { throw std::runtime_error("as a REQUIRE that does not hold"); }

}  // namespace

TEST_CASE("a deadlock names the seed of a shuffled loop, and none where there is none") {
  virtual_loop shuffled(42);
  CHECK_THAT(reproach(shuffled), Contains("a coroutine still waits") && Contains("MILLRACE_SEED=42"));
  virtual_loop plain;
  CHECK_THAT(reproach(plain), Contains("a coroutine still waits") && !Contains("MILLRACE_SEED"));
  jumping_loop jumping(18446744073709551615u);
  CHECK_THAT(reproach(jumping), Contains("a coroutine still waits") && Contains("MILLRACE_SEED=18446744073709551615"));
  jumping_loop orderly;
  CHECK_THAT(reproach(orderly), Contains("a coroutine still waits") && !Contains("MILLRACE_SEED"));
}

TEST_CASE("a test that an exception ends says the seed of its loop, once") {
  CHECK(said([] {
          virtual_loop loop(42);
          fail();
        }) == "MILLRACE_SEED=42\n");
  CHECK(said([] {
          jumping_loop loop(43);
          fail();
        }) == "MILLRACE_SEED=43\n");
  CHECK(said([] {
          virtual_loop loop(42);
          try {
            fail();
          } catch (const std::runtime_error&) {
            throw;
          }
        }) == "MILLRACE_SEED=42\n");
}

TEST_CASE("for a check that throws nothing the loop tells its seed when it is asked") {
  CHECK(virtual_loop(42).seed_text() == "MILLRACE_SEED=42");
  CHECK(jumping_loop(0).seed_text() == "MILLRACE_SEED=0");
  CHECK(virtual_loop().seed_text() == "");
  CHECK(jumping_loop().seed_text() == "");
}

TEST_CASE("a deadlock that ends a test says the seed, too") {
  CHECK(said([] {
          try {
            virtual_loop loop(44);
            mill::block_on(loop, hang());
          } catch (const mill::testing::deadlock&) {
          }
        }) == "MILLRACE_SEED=44\n");
}

TEST_CASE("nothing is said where nothing fails, and where there is no seed") {
  CHECK(said([] {
          virtual_loop loop(42);
          jumping_loop other(42);
          reproach(loop);  // expected: caught inside
        }) == "");
  CHECK(said([] {
          virtual_loop loop;
          jumping_loop other;
          fail();
        }) == "");
  struct cleans_up {
    ~cleans_up() { virtual_loop loop(42); }
  };
  CHECK(said([] {
          cleans_up late;  // its loop is made while an exception is on its way
          fail();
        }) == "");
}
