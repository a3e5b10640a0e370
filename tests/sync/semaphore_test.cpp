// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/sync/semaphore.hpp>

#include "tests/support/catch.hpp"

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

static_assert(!std::is_copy_constructible_v<semaphore::permit>);
static_assert(std::is_nothrow_move_constructible_v<semaphore::permit>);

namespace {

// Holds `amount` for `d`, noting when it got it and when it gives it back.
task<void> hold(semaphore& s, std::uint64_t amount, duration d, std::string& log, char name) {
  semaphore::permit p = co_await s.acquire(amount);
  log += name;
  if (d > 0ms) co_await virtual_sleep(d);
  log += static_cast<char>(name - 'a' + 'A');
}

}  // namespace

TEST_CASE("permits are given back when they are dropped, shrunk, replaced or released") {
  semaphore s(10);
  CHECK(s.capacity() == 10);
  {
    semaphore::permit a = s.try_acquire(4);
    CHECK(a);
    CHECK(a.amount() == 4);
    semaphore::permit b = std::move(a);
    CHECK_FALSE(a);
    CHECK(a.amount() == 0);
    CHECK(s.used() == 4);
    b.shrink_to(7);  // never grows
    CHECK(s.used() == 4);
    b.shrink_to(1);
    CHECK(s.used() == 1);
    b = s.try_acquire(9);
    CHECK(b.amount() == 9);
    CHECK(s.used() == 9);
    auto& same = b;
    b = std::move(same);
    CHECK(s.used() == 9);
    CHECK_FALSE(s.try_acquire(2));
    CHECK(s.try_acquire(1));
    CHECK(s.used() == 9);
    b.release();
    b.release();
    b.shrink_to(0);
    CHECK(s.used() == 0);
  }
  CHECK(s.used() == 0);
}

TEST_CASE("first in, first out: a large request is not overtaken by small ones") {
  testing::virtual_loop loop;
  semaphore s(4);
  std::string log;
  spawned<void> a(loop, hold(s, 3, 10ms, log, 'a'));
  spawned<void> b(loop, hold(s, 4, 10ms, log, 'b'));
  spawned<void> c(loop, hold(s, 1, 10ms, log, 'c'));
  spawned<void> d(loop, hold(s, 1, 10ms, log, 'd'));
  run_turns(loop, 1);
  CHECK(log == "a");
  CHECK(s.contended());
  CHECK_FALSE(s.try_acquire(1));  // not past those who wait
  run_until_idle(loop);
  CHECK(log == "aAbBcdCD");
  CHECK(s.used() == 0);
  CHECK_FALSE(s.contended());
}

TEST_CASE("an oversized request passes alone") {
  testing::virtual_loop loop;
  semaphore s(4);
  std::string log;
  spawned<void> a(loop, hold(s, 1, 10ms, log, 'a'));
  spawned<void> b(loop, hold(s, 100, 10ms, log, 'b'));
  spawned<void> c(loop, hold(s, 0, 10ms, log, 'c'));
  spawned<void> d(loop, hold(s, 4, 10ms, log, 'd'));
  run_until_idle(loop);
  CHECK(log == "aAbBcdCD");
  CHECK(loop.elapsed() == 30ms);
  CHECK(s.used() == 0);
  semaphore::permit big = s.try_acquire(1000);
  REQUIRE(big);
  CHECK_FALSE(s.try_acquire(1));
  big.shrink_to(3);
  CHECK(s.try_acquire(1));
}

TEST_CASE("dropped waiters give their place to those after them") {
  testing::virtual_loop loop;
  semaphore s(4);
  std::string log;
  spawned<void> a(loop, hold(s, 3, 10ms, log, 'a'));
  spawned<void> b(loop, hold(s, 4, 10ms, log, 'b'));
  spawned<void> c(loop, hold(s, 1, 10ms, log, 'c'));
  run_turns(loop, 1);
  CHECK(log == "a");
  b = spawned<void>();
  CHECK(s.used() == 4);  // granted to c, which has not run yet
  SECTION("which then runs") {
    run_turns(loop, 1);
    CHECK(log.substr(0, 2) == "ac");
  }
  SECTION("which is dropped before it runs") {
    c = spawned<void>();
    CHECK(s.used() == 3);
    CHECK(s.try_acquire(1));
  }
  run_until_idle(loop);
  CHECK(s.used() == 0);
}

TEST_CASE("permits in dropped frames go back") {
  testing::virtual_loop loop;
  semaphore s(2);
  std::string log;
  spawned<void> a(loop, hold(s, 2, 10ms, log, 'a'));
  spawned<void> b(loop, hold(s, 2, 10ms, log, 'b'));
  run_turns(loop, 1);
  a = spawned<void>();
  run_until_idle(loop);
  CHECK(log == "abB");
}

TEST_CASE("a semaphore never lends more than it has, and all that stay are served, in order") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    testing::virtual_loop loop(seed);
    INFO(loop.seed_text());
    rng random(seed);
    const std::uint64_t capacity = 1 + random.below(5);
    semaphore s(capacity);
    struct state {
      std::uint64_t out = 0;
      int holders = 0;
      std::vector<int> order;
    } now;
    struct local {
      static task<void> use(semaphore& s, std::uint64_t amount, duration d, state& now, int id) {
        struct mark {
          state& st;
          std::uint64_t n;
          mark(state& on, std::uint64_t count) : st(on), n(count) {
            st.out += n;
            if (n > 0) ++st.holders;
          }
          ~mark() {
            st.out -= n;
            if (n > 0) --st.holders;
          }
        };
        semaphore::permit p = co_await s.acquire(amount);
        mark m(now, amount);
        now.order.push_back(id);
        REQUIRE((now.out <= s.capacity() || now.holders == 1));
        co_await virtual_sleep(d);
      }
    };
    std::vector<spawned<void>> users;
    std::vector<int> dropped;
    for (int i = 0; i < 30; ++i) {
      users.emplace_back(loop, local::use(s, random.below(capacity + 2), duration(random.below(20)), now, i));
      if (random.below(3) == 0) run_turns(loop, 1);
      if (random.below(4) == 0) users[static_cast<std::size_t>(random.below(users.size()))] = spawned<void>();
    }
    run_until_idle(loop);
    for (spawned<void>& u : users) REQUIRE((!u || u.done()));
    REQUIRE(s.used() == 0);
    REQUIRE_FALSE(s.contended());
    users.clear();
    REQUIRE(loop.frames() == 0);
  }
}
