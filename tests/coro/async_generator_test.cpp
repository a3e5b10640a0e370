// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/async_generator.hpp>

#include "tests/support/catch.hpp"

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

static_assert(!std::is_copy_constructible_v<async_generator<int>>);
static_assert(!std::is_constructible_v<async_generator<int>,
                                       std::coroutine_handle<async_generator<int>::promise_type>>);
static_assert(std::is_nothrow_move_constructible_v<async_generator<int>>);
static_assert(std::is_nothrow_move_assignable_v<async_generator<int>>);

namespace {

async_generator<int> count_to(int n) {
  for (int i = 1; i <= n; ++i) co_yield int(i);
}
async_generator<int> slow_count_to(int n) {
  for (int i = 1; i <= n; ++i) {
    co_await virtual_sleep(10ms);
    co_yield int(i);
  }
}
async_generator<int> relay(async_generator<int> in) {
  while (auto x = co_await in.next()) co_yield give(*x);
}
template <class T>
task<std::vector<T>> collect(async_generator<T> in) {
  std::vector<T> items;
  while (auto x = co_await in.next()) items.push_back(std::move(*x));
  co_return items;
}
task<long> sum(async_generator<int> in) {
  long total = 0;
  while (auto x = co_await in.next()) total += *x;
  co_return total;
}
// One next() of a generator that lives elsewhere.
task<void> take_into(async_generator<int>& from, std::vector<int>& out) {
  auto x = co_await from.next();
  out.push_back(x ? *x : -1);
}

}  // namespace

TEST_CASE("a generator gives its items and then nullopt for ever") {
  testing::virtual_loop loop;
  CHECK(block_on(loop, collect(count_to(5))) == std::vector<int>{1, 2, 3, 4, 5});
  CHECK(block_on(loop, collect(slow_count_to(3))) == std::vector<int>{1, 2, 3});
  CHECK(loop.elapsed() == 30ms);
  CHECK(block_on(loop, collect(count_to(0))).empty());
  async_generator<int> g = slow_count_to(1);
  std::vector<int> seen;
  for (int i = 0; i < 4; ++i) block_on(loop, take_into(g, seen));
  CHECK(seen == std::vector<int>{1, -1, -1, -1});
}

TEST_CASE("nothing runs before next(), and nothing beyond the item that was asked for") {
  testing::virtual_loop loop;
  std::vector<int> made;
  struct local {
    static async_generator<int> noting(std::vector<int>& made) {
      for (int i = 1;; ++i) {
        made.push_back(i);
        co_yield int(i);
      }
    }
  };
  async_generator<int> g = local::noting(made);
  CHECK(made.empty());
  CHECK(loop.frames() == 0);
  std::vector<int> seen;
  block_on(loop, take_into(g, seen));
  CHECK(made == std::vector<int>{1});
  run_until_idle(loop);
  CHECK(made == std::vector<int>{1});
  block_on(loop, take_into(g, seen));
  CHECK(made == std::vector<int>{1, 2});
  CHECK(loop.frames() == 1);
  g = async_generator<int>();
  CHECK(loop.frames() == 0);
}

TEST_CASE("an exception is thrown by one next(), the items before it are delivered, the end follows") {
  struct local {
    static async_generator<int> failing(bool sleep) {
      co_yield 1;
      co_yield 2;
      if (sleep) co_await virtual_sleep(1ms);
      throw std::runtime_error("broken");
    }
    static async_generator<int> failing_at_once() {
      throw std::runtime_error("at once");
      co_yield 1;
    }
    static task<std::string> consume(async_generator<int> g) {
      std::string log;
      for (int i = 0; i < 6; ++i) {
        try {
          auto x = co_await g.next();
          log += x ? std::to_string(*x) : ".";
        } catch (const std::runtime_error& e) {
          log += e.what();
        }
      }
      co_return log;
    }
  };
  testing::virtual_loop loop;
  CHECK(block_on(loop, local::consume(local::failing(false))) == "12broken...");
  CHECK(block_on(loop, local::consume(local::failing(true))) == "12broken...");
  CHECK(block_on(loop, local::consume(relay(relay(local::failing(true))))) == "12broken...");
  CHECK(block_on(loop, local::consume(local::failing_at_once())) == "at once.....");
}

TEST_CASE("what co_yield copies and moves") {
  struct local {
    static async_generator<tracked> copying() {
      tracked x(7);
      co_yield x;
      co_yield tracked(x.value);  // the generator kept its own
    }
    static async_generator<tracked> copying_const() {
      const tracked x(7);
      co_yield x;
      co_yield x;
    }
    static async_generator<tracked> moving() {
      tracked x(7);
      co_yield std::move(x);
      co_yield tracked(x.value);
    }
    static async_generator<tracked> giving() {
      tracked x(7);
      co_yield give(x);
      co_yield tracked(x.value);
    }
    static task<void> expect(async_generator<tracked> g, int second, int copies, int moves) {
      tracked::copies = tracked::moves = 0;
      {
        auto x = co_await g.next();
        const int value = x ? x->value : 0;
        CHECK(value == 7);
        CHECK(tracked::copies == copies);
        CHECK(tracked::moves == moves);
      }
      auto y = co_await g.next();
      const int value = y ? y->value : 0;
      CHECK(value == second);
    }
  };
  testing::virtual_loop loop;
  tracked::reset();
  block_on(loop, local::expect(local::copying(), 7, 1, 1));
  block_on(loop, local::expect(local::copying_const(), 7, 1, 1));
  block_on(loop, local::expect(local::moving(), -1, 0, 1));
  block_on(loop, local::expect(local::giving(), -1, 0, 1));
  CHECK(tracked::clean());
}

TEST_CASE("items may be move-only, aggregates, without default constructor, or converted") {
  struct pair_of {
    std::unique_ptr<int> first;
    tracked second;
  };
  struct no_default {
    explicit no_default(int v) : value(v) {}
    int value;
  };
  struct local {
    static async_generator<std::unique_ptr<int>> pointers() {
      co_yield std::make_unique<int>(1);
      auto p = std::make_unique<int>(2);
      co_yield std::move(p);
      p = std::make_unique<int>(3);
      co_yield give(p);
    }
    static async_generator<pair_of> aggregates() {
      for (int i = 0; i < 3; ++i) {
        pair_of x{std::make_unique<int>(i), tracked(i)};
        co_yield give(x);
      }
    }
    static async_generator<no_default> plain() { co_yield no_default(4); }
    static async_generator<std::string> converted() {
      co_yield "one";
      co_yield std::string(3, 'x');
      co_yield std::string("three");
    }
  };
  testing::virtual_loop loop;
  tracked::reset();
  auto pointers = block_on(loop, collect(local::pointers()));
  REQUIRE(pointers.size() == 3);
  CHECK(*pointers[0] + *pointers[1] + *pointers[2] == 6);
  {
    auto aggregates = block_on(loop, collect(local::aggregates()));
    REQUIRE(aggregates.size() == 3);
    CHECK(*aggregates[2].first == 2);
    CHECK(aggregates[2].second.value == 2);
  }
  CHECK(block_on(loop, collect(local::plain())).at(0).value == 4);
  CHECK(block_on(loop, collect(local::converted())) == std::vector<std::string>{"one", "xxx", "three"});
  CHECK(tracked::clean());
}

TEST_CASE("a copy that throws is the generator's own exception") {
  struct fragile {
    explicit fragile(int v) : value(v) {}
    fragile(fragile&& other) noexcept : value(other.value) {}
    fragile(const fragile&) : value(0) { throw std::runtime_error("no copy"); }
    int value;
  };
  struct local {
    static async_generator<fragile> g() {
      fragile x(1);
      bool failed = false;
      try {
        co_yield x;
      } catch (const std::runtime_error&) {
        failed = true;
      }
      if (failed) co_yield fragile(2);
    }
  };
  testing::virtual_loop loop;
  auto items = block_on(loop, collect(local::g()));
  REQUIRE(items.size() == 1);
  CHECK(items[0].value == 2);
}

TEST_CASE("dropping a next() that waits loses nothing") {
  testing::virtual_loop loop;
  async_generator<int> g = relay(slow_count_to(3));
  std::vector<int> seen;
  SECTION("dropped while the source waits, asked again while it still waits") {
    spawned<void> dropped(loop, take_into(g, seen));
    run_turns(loop, 1);
    dropped = spawned<void>();
    block_on(loop, take_into(g, seen));
    CHECK(loop.elapsed() == 10ms);
  }
  SECTION("asked again only after the item was made") {
    spawned<void> dropped(loop, take_into(g, seen));
    run_turns(loop, 1);
    dropped = spawned<void>();
    run_until_idle(loop);
    CHECK(loop.elapsed() == 10ms);
    CHECK(seen.empty());
    block_on(loop, take_into(g, seen));
    CHECK(loop.elapsed() == 10ms);
  }
  SECTION("dropped twice") {
    for (int i = 0; i < 2; ++i) {
      spawned<void> dropped(loop, take_into(g, seen));
      run_turns(loop, 1);
    }
  }
  SECTION("dropped before it ran") { spawned<void> dropped(loop, take_into(g, seen)); }
  while (seen.empty() || seen.back() != -1) block_on(loop, take_into(g, seen));
  CHECK(seen == std::vector<int>{1, 2, 3, -1});
}

TEST_CASE("dropping a next() that waits for its turn in the queue loses nothing") {
  struct local {
    static task<void> take_many(async_generator<int>& from, std::vector<int>& out) {
      while (auto x = co_await from.next()) out.push_back(*x);
    }
  };
  testing::virtual_loop loop;
  async_generator<int> g = relay(count_to(200));
  std::vector<int> seen;
  std::size_t before = 0;
  do {  // each drop hits a hop that went through the queue
    before = seen.size();
    spawned<void> dropped(loop, local::take_many(g, seen));
    run_turns(loop, 1);
  } while (seen.size() > before);
  std::vector<int> expected;
  for (int i = 1; i <= 200; ++i) expected.push_back(i);
  CHECK(seen == expected);
}

TEST_CASE("a generator may be dropped wherever it is") {
  testing::virtual_loop loop;
  tracked::reset();
  struct local {
    static async_generator<tracked> source(tracked parameter) {
      tracked resource(1);
      for (int i = 0;; ++i) {
        if (i % 2 == 1) co_await virtual_sleep(10ms);
        tracked item(i + parameter.value);
        co_yield give(item);
      }
    }
    static async_generator<tracked> stage(async_generator<tracked> in) {
      while (auto x = co_await in.next()) co_yield give(*x);
    }
    static task<void> consume(async_generator<tracked> in, int& count) {
      while (auto x = co_await in.next()) ++count;
    }
  };
  SECTION("before it ran") {
    auto g = local::stage(local::source(tracked(1)));
    CHECK(tracked::live == 1);
  }
  SECTION("at a yield") {
    auto g = local::stage(local::source(tracked(1)));
    struct once {
      static task<void> take(async_generator<tracked>& from) { (void)co_await from.next(); }
    };
    block_on(loop, once::take(g));
    CHECK(loop.frames() == 2);
  }
  SECTION("while its consumer waits") {
    int count = 0;
    spawned<void> consumer(loop, local::consume(local::stage(local::source(tracked(1))), count));
    run_turns(loop, 1);
    CHECK(count == 1);
    CHECK(loop.timers() == 1);
    CHECK(loop.frames() == 3);
  }
  SECTION("when the wait has ended and the source is queued") {
    int count = 0;
    spawned<void> consumer(loop, local::consume(local::stage(local::source(tracked(1))), count));
    run_turns(loop, 1);  // the turn ends with the clock at the timer
    loop.advance(10ms);
    int asked = 0;
    loop.run_until([&] { return ++asked == 1 || loop.timers() == 0; });
    CHECK(count == 1);
  }
  SECTION("by assignment") {
    auto g = local::stage(local::source(tracked(1)));
    g = local::stage(local::source(tracked(2)));
    CHECK(tracked::live == 1);
    auto& same = g;
    g = std::move(same);
    CHECK(g);
  }
  CHECK(loop.frames() == 0);
  CHECK(loop.timers() == 0);
  CHECK(tracked::clean());
  run_until_idle(loop);
}

TEST_CASE("dropping destroys the consumer's await first, then its locals, then its parameters") {
  struct note {
    note(std::string& l, char n) : log(&l), name(n) {}
    note(note&& other) noexcept : log(std::exchange(other.log, nullptr)), name(other.name) {}
    ~note() {
      if (log != nullptr) *log += name;
    }
    std::string* log;
    char name;
  };
  struct local {
    static async_generator<int> source(note parameter) {
      note inside(*parameter.log, 's');
      co_await virtual_sleep(1ms);
      co_yield 1;
    }
    static async_generator<int> stage(async_generator<int> in, note parameter) {
      note inside(*parameter.log, 't');
      while (auto x = co_await in.next()) co_yield give(*x);
    }
    static task<void> consume(std::string& log) {
      note first(log, '1');
      (void)co_await local::stage(local::source(note(log, 'p')), note(log, 'q')).next();
      note never(log, '!');
    }
  };
  testing::virtual_loop loop;
  std::string log;
  {
    spawned<void> s(loop, local::consume(log));
    run_turns(loop, 1);
  }
  // the stage's locals, then its parameters: the compiler's order, of which the source is one
  CHECK((log == "tqsp1" || log == "tspq1"));
  log.clear();
  { block_on(loop, local::consume(log)); }
  CHECK(log.size() == 6);
  CHECK(log.back() == '1');
}

TEST_CASE("kept objects outlive the whole coroutine, parameters included") {
  struct watcher {
    watcher(const bool& k, int& v) : kept(&k), violations(&v) {}
    watcher(watcher&& other) noexcept : kept(other.kept), violations(std::exchange(other.violations, nullptr)) {}
    ~watcher() {
      if (violations != nullptr && !*kept) ++*violations;
    }
    const bool* kept;
    int* violations;
  };
  struct local {
    static async_generator<int> g(watcher w) {
      watcher inside(*w.kept, *w.violations);
      co_yield 1;
      co_yield 2;
    }
  };
  testing::virtual_loop loop;
  bool kept = true;
  int violations = 0;
  int object = 0;
  {
    auto g = local::g(watcher(kept, violations)).keep(std::shared_ptr<void>(&object, [&kept](void*) noexcept {
      kept = false;
    }));
    std::vector<int> seen;
    block_on(loop, take_into(g, seen));
    CHECK(kept);
  }
  CHECK_FALSE(kept);
  CHECK(violations == 0);
}

TEST_CASE("a million items through ten stages need no stack", "[slow]") {
  testing::virtual_loop loop;
  async_generator<int> g = count_to(1000000);
  for (int i = 0; i < 10; ++i) g = relay(std::move(g));
  CHECK(block_on(loop, sum(std::move(g))) == 500000500000);
}

TEST_CASE("two thousand stages need no stack") {
  testing::virtual_loop loop;
  async_generator<int> g = slow_count_to(3);
  for (int i = 0; i < 2000; ++i) g = relay(std::move(g));
  CHECK(block_on(loop, sum(std::move(g))) == 6);
}

TEST_CASE("items that are always there starve neither timers nor other coroutines") {
  struct local {
    static async_generator<int> endless() {
      for (int i = 0;; ++i) co_yield int(i);
    }
    static task<long> until(async_generator<int> g, const bool& stop, long limit) {
      long n = 0;
      while (!stop && n < limit) {
        (void)co_await g.next();
        ++n;
      }
      co_return n;
    }
    static task<void> turns(int n, bool& done) {
      for (int i = 0; i < n; ++i) co_await yield_now();
      done = true;
    }
    static task<void> timer(bool& done) {
      co_await virtual_sleep(0ms);
      done = true;
    }
  };
  testing::virtual_loop loop;
  bool done = false;
  SECTION("another coroutine") {
    spawned<void> other(loop, local::turns(10, done));
    CHECK(block_on(loop, local::until(relay(local::endless()), done, 1000000)) <= 12 * executor::inline_budget);
  }
  SECTION("a timer") {
    spawned<void> other(loop, local::timer(done));
    CHECK(block_on(loop, local::until(relay(local::endless()), done, 1000000)) <= 4 * executor::inline_budget);
  }
}

async_generator<int> asking_itself(async_generator<int>*& self) {
  for (int n = 0;; ++n) {
    co_yield int(n);
    if (n == 4) (void)co_await self->next();
  }
}

TEST_CASE("an empty generator is refused with a sentence wherever it is used") {
  testing::virtual_loop loop;
  async_generator<int> none = count_to(3);
  const async_generator<int> elsewhere = std::move(none);
  std::vector<int> seen;
  const auto refused = [](auto use) { return misuse_message(use).find("empty: moved from") != std::string::npos; };
  CHECK(refused([&] { block_on(loop, take_into(none, seen)); }));
  CHECK(refused([&] { (void)none.next(); }));
  CHECK(refused([&] { (void)none.next_in_place(); }));
  CHECK(refused([] { (void)async_generator<int>().keep(nullptr); }));
  CHECK(seen.empty());
  CHECK(loop.frames() == 0);
}

TEST_CASE("a second next() while one waits is refused, and the first one gets its item") {
  testing::virtual_loop loop;
  async_generator<int> g = slow_count_to(3);
  std::vector<int> seen;
  spawned<void> one(loop, take_into(g, seen));
  spawned<void> two(loop, take_into(g, seen));
  loop.run_until([&] { return one.done() && two.done(); });
  CHECK(seen == std::vector<int>{1});
  CHECK_NOTHROW(one.take());
  CHECK(misuse_message([&] { two.take(); }).find("one outstanding next()") != std::string::npos);
  block_on(loop, take_into(g, seen));
  CHECK(seen == std::vector<int>{1, 2});
}

TEST_CASE("the same where an account is kept") {
  testing::virtual_loop loop;
  stage_recorder records;
  stage_record* const sink = records.find_or_add("sink", nullptr);
  async_generator<int> g = as_stage("slow", slow_count_to(3));
  std::vector<int> seen;
  spawned<void> one({loop, sink}, take_into(g, seen));
  spawned<void> two({loop, sink}, take_into(g, seen));
  loop.run_until([&] { return one.done() && two.done(); });
  CHECK(seen == std::vector<int>{1});
  CHECK(misuse_message([&] { two.take(); }).find("one outstanding next()") != std::string::npos);
}

TEST_CASE("a generator that asks itself is refused") {
  testing::virtual_loop loop;
  async_generator<int>* self = nullptr;
  async_generator<int> g = asking_itself(self);
  self = &g;
  std::vector<int> seen;
  CHECK(misuse_message([&] {
          for (int i = 0; i < 10; ++i) block_on(loop, take_into(g, seen));
        }).find("one outstanding next()") != std::string::npos);
  CHECK(seen == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("a generator that has begun on one executor is refused on another") {
  testing::virtual_loop one;
  testing::virtual_loop two;
  std::vector<int> seen;
  SECTION("where it is asked and waits") {
    async_generator<int> g = slow_count_to(3);
    block_on(one, take_into(g, seen));
    CHECK(misuse_message([&] { block_on(two, take_into(g, seen)); }).find("another executor") != std::string::npos);
  }
  SECTION("where it waits, and an account is kept") {
    stage_recorder records;
    stage_record* const sink = records.find_or_add("sink", nullptr);
    async_generator<int> g = as_stage("counting", slow_count_to(3));
    block_on({one, sink}, take_into(g, seen));
    CHECK(misuse_message([&] { block_on({two, sink}, take_into(g, seen)); }).find("another executor") !=
          std::string::npos);
  }
  SECTION("where its item is there at once, and it keeps an account of its own") {
    stage_recorder records;
    stage_record* const sink = records.find_or_add("sink", nullptr);
    async_generator<int> g = as_stage("counting", count_to(3));
    block_on({one, sink}, take_into(g, seen));
    CHECK(misuse_message([&] { block_on({two, sink}, take_into(g, seen)); }).find("another executor") !=
          std::string::npos);
    block_on({one, sink}, take_into(g, seen));  // it goes on where it belongs
    CHECK(seen == std::vector<int>{1, 2});
    seen.pop_back();
  }
  CHECK(seen == std::vector<int>{1});
}

TEST_CASE("an executor that ends before its generators ends the process with a reason") {
  CHECK(death_message([] {
          async_generator<int> g = slow_count_to(3);
          std::vector<int> seen;
          testing::virtual_loop loop;
          block_on(loop, take_into(g, seen));
        }).find("destroyed before its coroutines") != std::string::npos);
}
