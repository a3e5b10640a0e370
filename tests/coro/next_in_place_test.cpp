// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/async_generator.hpp>

#include "tests/support/catch.hpp"

#include <climits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <millrace/coro/spawned.hpp>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

async_generator<int> slow_count_to(int n) {
  for (int i = 1; i <= n; ++i) {
    co_await virtual_sleep(10ms);
    co_yield int(i);
  }
}
async_generator<int> endless() {
  for (int i = 0;; ++i) co_yield int(i);
}
// How many items come before `stop` is set.
task<long> until(async_generator<int> in, const bool& stop, long limit) {
  long n = 0;
  while (!stop && n < limit) {
    const int* const item = co_await in.next_in_place();
    REQUIRE(item != nullptr);
    ++n;
  }
  co_return n;
}
task<void> turns(int n, bool& done) {
  for (int i = 0; i < n; ++i) co_await yield_now();
  done = true;
}

}  // namespace

TEST_CASE("an item taken in place is the generator's own object, until it is asked again") {
  struct local {
    static async_generator<std::string> words(const std::string*& own, std::vector<std::string>& left) {
      for (int i = 0; i < 3; ++i) {
        std::string word = "a word that does not fit into a short string " + std::to_string(i);
        own = &word;
        co_yield give(word);
        left.push_back(word);
      }
    }
    static task<void> consume(std::vector<std::string>& taken, std::vector<std::string>& left) {
      const std::string* own = nullptr;
      async_generator<std::string> g = words(own, left);
      while (std::string* word = co_await g.next_in_place()) {
        CHECK(word == own);
        taken.push_back(*word);
        if (taken.size() == 2) word->clear();
      }
      CHECK(left.size() == 3);
      CHECK(left[1].empty());
    }
  };
  testing::virtual_loop loop;
  std::vector<std::string> taken;
  std::vector<std::string> left;
  block_on(loop, local::consume(taken, left));
  CHECK(taken.size() == 3);
  CHECK(left[2] == taken[2]);
}

TEST_CASE("next_in_place() waits, ends and fails as next() does, and the two may be mixed") {
  struct local {
    static async_generator<int> failing() {
      co_yield 1;
      co_await virtual_sleep(1ms);
      throw std::runtime_error("broken");
    }
    static task<void> mixed(std::vector<int>& seen) {
      async_generator<int> g = slow_count_to(4);
      for (bool in_place = true;; in_place = !in_place) {
        if (in_place) {
          const int* const item = co_await g.next_in_place();
          if (item == nullptr) break;
          seen.push_back(*item);
        } else {
          const std::optional<int> item = co_await g.next();
          if (!item) break;
          seen.push_back(*item);
        }
      }
      const int* const behind = co_await g.next_in_place();
      CHECK(behind == nullptr);
    }
    static task<void> fails(std::vector<int>& seen) {
      async_generator<int> g = failing();
      bool thrown = false;
      for (int i = 0; i < 4; ++i) {
        try {
          const int* const item = co_await g.next_in_place();
          seen.push_back(item == nullptr ? -1 : *item);
        } catch (const std::runtime_error&) {
          CHECK_FALSE(thrown);
          thrown = true;
        }
      }
      CHECK(thrown);
    }
  };
  testing::virtual_loop loop;
  std::vector<int> seen;
  SECTION("mixed") {
    block_on(loop, local::mixed(seen));
    CHECK(seen == std::vector{1, 2, 3, 4});
  }
  SECTION("an error, once") {
    block_on(loop, local::fails(seen));
    CHECK(seen == std::vector{1, -1, -1});
  }
}

async_generator<const std::string> constants() {
  const std::string a = "a";
  co_yield a;
  co_yield std::string("b");
  co_await virtual_sleep(1ms);
  const std::string c = "c";
  co_yield give(c);
}
task<std::string> joined(async_generator<const std::string> source) {
  std::string all;
  for (;;) {
    std::optional<const std::string> one = co_await source.next();
    if (!one) break;
    all += *one;
    const std::string* const next = co_await source.next_in_place();
    if (next == nullptr) break;
    all += *next;
  }
  co_return all;
}

// Gives the address of what it holds, as the smart pointers of some interfaces do.
class holder {
 public:
  explicit holder(int n) noexcept : held(n) {}
  int* operator&() noexcept { return &held; }
  int before = 0;
  int held;
};
async_generator<holder> holders() {
  holder first(1);
  co_yield give(first);
  co_yield holder(2);
  co_await virtual_sleep(1ms);
  holder third(3);
  co_yield give(third);
}
task<std::vector<int>> held(async_generator<holder> source) {
  std::vector<int> all;
  while (holder* const one = co_await source.next_in_place()) {
    all.push_back(one->held);
    CHECK(one->before == 0);
  }
  co_return all;
}

TEST_CASE("items may have an operator& of their own") {
  testing::virtual_loop loop;
  CHECK(block_on(loop, held(holders())) == std::vector{1, 2, 3});
}

TEST_CASE("items may be const") {
  testing::virtual_loop loop;
  CHECK(block_on(loop, joined(constants())) == "abc");
}

TEST_CASE("dropping a next_in_place() that waits loses nothing") {
  struct local {
    static task<void> take_into(async_generator<int>& from, std::vector<int>& out) {
      const int* const item = co_await from.next_in_place();
      out.push_back(item == nullptr ? -1 : *item);
    }
  };
  testing::virtual_loop loop;
  std::vector<int> seen;
  async_generator<int> g = slow_count_to(2);
  SECTION("asked again while the generator still waits") {
    spawned<void> dropped(loop, local::take_into(g, seen));
    run_turns(loop, 1);
  }
  SECTION("asked again when the item is there") {
    {
      spawned<void> dropped(loop, local::take_into(g, seen));
      run_turns(loop, 1);
    }
    run_until_idle(loop);
    CHECK(seen.empty());
  }
  for (int i = 0; i < 3; ++i) block_on(loop, local::take_into(g, seen));
  CHECK(seen == std::vector{1, 2, -1});
}

TEST_CASE("the inline budget can be set: how many items pass before others have their turn") {
  const int hops = GENERATE(1, 10, 1000);
  testing::virtual_loop loop;
  loop.set_inline_budget(hops);
  bool done = false;
  spawned<void> other(loop, turns(10, done));
  const long passed = block_on(loop, until(endless(), done, 1000000));
  CHECK(passed <= 12L * hops);
  CHECK(passed >= 8L * (hops - 1));
}

TEST_CASE("without a bound on the inline budget nothing else has a turn while items are there") {
  testing::virtual_loop loop;
  loop.set_inline_budget(INT_MAX);
  bool done = false;
  spawned<void> other(loop, turns(10, done));
  CHECK(block_on(loop, until(endless(), done, 100000)) == 100000);
}
