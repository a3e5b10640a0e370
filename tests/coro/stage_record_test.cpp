// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/stage_record.hpp>

#include "tests/support/catch.hpp"

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

struct packet {
  explicit packet(std::size_t n) : size(n) {}
  std::size_t size;
};
std::size_t byte_size(const packet& p) { return p.size; }

// Makes `count` packets, each after `compute` on the loop and `wait` beside it.
async_generator<packet> source(int count, duration compute, duration wait) {
  for (int i = 0; i < count; ++i) {
    co_await compute_for(compute);
    if (wait > 0ms) co_await virtual_sleep(wait);
    co_yield packet(100);
  }
}
async_generator<packet> relay(async_generator<packet> in, duration compute) {
  while (auto p = co_await in.next()) {
    co_await compute_for(compute);
    co_yield give(*p);
  }
}
task<int> sink(async_generator<packet> in, duration compute) {
  int count = 0;
  while (auto p = co_await in.next()) {
    co_await compute_for(compute);
    ++count;
  }
  co_return count;
}

// byte_size() throws the first times.
struct heavy {
  explicit heavy(int n) : number(n) {}
  int number;
  static inline int refusals = 0;
};
std::size_t byte_size(const heavy&) {
  if (heavy::refusals > 0) {
    --heavy::refusals;
    throw std::length_error("no size");
  }
  return 1;
}

double ms(const stage_record::counter& c) { return static_cast<double>(c.load()) / 1e6; }

struct rows {
  explicit rows(const stage_recorder& recorder) {
    recorder.for_each([this](const stage_record& r) { list.push_back(&r); });
  }
  const stage_record& operator[](std::size_t i) const { return *list.at(i); }
  std::vector<const stage_record*> list;
};

}  // namespace

TEST_CASE("stage records are found by name and consumer") {
  stage_recorder recorder;
  stage_record* const a = recorder.find_or_add("a", nullptr);
  stage_record* const b = recorder.find_or_add("b", a);
  CHECK(recorder.find_or_add(std::string("a").c_str(), nullptr) == a);
  CHECK(recorder.find_or_add("b", a) == b);
  CHECK(recorder.find_or_add("b", b) != b);
  CHECK(recorder.find_or_add("b", nullptr) != b);
  CHECK(b->parent == a);
  CHECK(b->owner == &recorder);
  CHECK(rows(recorder).list.size() == 4);
  CHECK(rows(recorder)[0].name == std::string("a"));
}

TEST_CASE("time of stages is exact: computing and waiting sources, three stages") {
  testing::virtual_loop loop;
  stage_recorder recorder;
  auto g = as_stage("relay", relay(as_stage("source", source(10, 3ms, 2ms)), 1ms));
  const int count = block_on({loop, recorder.find_or_add("sink", nullptr)}, sink(std::move(g), 5ms));
  CHECK(count == 10);
  CHECK(loop.elapsed() == 110ms);
  const rows r(recorder);
  REQUIRE(r.list.size() == 3);

  CHECK(r[0].name == std::string("sink"));
  CHECK(ms(r[0].busy_ns) == 50);
  CHECK(ms(r[0].starved_ns) == 60);

  CHECK(r[1].name == std::string("relay"));
  CHECK(r[1].parent == &r[0]);
  CHECK(r[1].items == 10);
  CHECK(r[1].bytes == 1000);
  CHECK(ms(r[1].busy_ns) == 10);
  CHECK(ms(r[1].starved_ns) == 50);
  CHECK(ms(r[1].asked_ns) == 60);
  CHECK(ms(r[1].blocked_ns) == 50);

  CHECK(r[2].name == std::string("source"));
  CHECK(r[2].parent == &r[1]);
  CHECK(r[2].items == 10);
  CHECK(ms(r[2].busy_ns) == 30);
  CHECK(ms(r[2].starved_ns) == 0);
  CHECK(ms(r[2].asked_ns) == 50);  // of these 20 are its own waiting: asked - starved - busy
  CHECK(ms(r[2].blocked_ns) == 60);
}

TEST_CASE("a byte_size() that throws loses no item") {
  struct local {
    static async_generator<heavy> source() {
      co_yield heavy(1);
      co_yield heavy(2);
    }
    static task<void> consume(std::vector<int>& seen, int& thrown) {
      auto g = as_stage("source", source());
      for (;;) {
        try {
          std::optional<heavy> item = co_await g.next();
          if (!item) co_return;
          seen.push_back(item->number);
        } catch (const std::length_error&) {
          ++thrown;
        }
      }
    }
  };
  testing::virtual_loop loop;
  stage_recorder recorder;
  std::vector<int> seen;
  int thrown = 0;
  heavy::refusals = 2;
  block_on({loop, recorder.find_or_add("sink", nullptr)}, local::consume(seen, thrown));
  CHECK(thrown == 2);
  CHECK(seen == std::vector{1, 2});
}

TEST_CASE("time of stages is exact when everything is there without waiting, across the inline budget") {
  testing::virtual_loop loop;
  stage_recorder recorder;
  auto g = as_stage("relay", relay(as_stage("source", source(1000, 3us, 0us)), 1us));
  block_on({loop, recorder.find_or_add("sink", nullptr)}, sink(std::move(g), 5us));
  CHECK(loop.elapsed() == 9ms);
  const rows r(recorder);
  REQUIRE(r.list.size() == 3);
  CHECK(ms(r[0].busy_ns) == 5);
  CHECK(ms(r[0].starved_ns) == 4);
  CHECK(r[1].items == 1000);
  CHECK(ms(r[1].busy_ns) == 1);
  CHECK(ms(r[1].starved_ns) == 3);
  CHECK(ms(r[1].asked_ns) == 4);
  CHECK(ms(r[1].blocked_ns) == 5);
  CHECK(r[2].items == 1000);
  CHECK(ms(r[2].busy_ns) == 3);
  CHECK(ms(r[2].asked_ns) == 3);
  CHECK(ms(r[2].blocked_ns) == 6);
}

TEST_CASE("a generator without a name works on its consumer's account") {
  testing::virtual_loop loop;
  stage_recorder recorder;
  auto inner = relay(as_stage("source", source(4, 3ms, 2ms)), 1ms);  // part of the sink
  auto outer = relay(std::move(inner), 2ms);
  block_on({loop, recorder.find_or_add("sink", nullptr)}, sink(std::move(outer), 5ms));
  const rows r(recorder);
  REQUIRE(r.list.size() == 2);
  CHECK(r[1].parent == &r[0]);
  CHECK(ms(r[0].busy_ns) == 4 * (1 + 2 + 5));
  CHECK(ms(r[0].starved_ns) == 4 * 5);
  CHECK(r[0].items == 0);
  CHECK(ms(r[1].asked_ns) == 4 * 5);
  CHECK(ms(r[1].busy_ns) == 4 * 3);
  CHECK(ms(r[1].blocked_ns) == 4 * 8);
}

TEST_CASE("tasks and their sleeps are on the account of the stage that awaits them") {
  struct stages {
    static task<void> work() {
      co_await compute_for(3ms);
      co_await virtual_sleep(4ms);
      co_await compute_for(2ms);
    }
    static async_generator<packet> worker(int n) {
      for (int i = 0; i < n; ++i) {
        co_await work();
        co_yield packet(1);
      }
    }
  };
  testing::virtual_loop loop;
  stage_recorder recorder;
  block_on({loop, recorder.find_or_add("sink", nullptr)}, sink(as_stage("worker", stages::worker(3)), 1ms));
  const rows r(recorder);
  CHECK(ms(r[1].busy_ns) == 15);
  CHECK(ms(r[1].asked_ns) == 27);
  CHECK(ms(r[1].blocked_ns) == 3);
  CHECK(ms(r[0].starved_ns) == 27);
  CHECK(ms(r[0].busy_ns) == 3);
}

TEST_CASE("generators at work at once that are one stage are asked, starved and blocked for no more than the time") {
  struct pipeline {
    static task<void> pull(async_generator<packet> from, duration pause) {
      for (;;) {
        const std::optional<packet> p = co_await from.next();
        if (!p) break;
        co_await virtual_sleep(pause);
      }
    }
  };
  testing::virtual_loop loop;
  stage_recorder recorder;
  stage_record* const top = recorder.find_or_add("sink", nullptr);
  std::vector<spawned<void>> pulling;
  for (int i = 0; i < 3; ++i) {
    auto from = as_stage("relay", relay(as_stage("source", source(4, 0ms, 10ms)), 0ms));
    pulling.emplace_back(coroutine_context(loop, top), pipeline::pull(std::move(from), 5ms));
  }
  loop.run_until([&] { return pulling[0].done() && pulling[1].done() && pulling[2].done(); });
  CHECK(loop.elapsed() == 60ms);
  const rows r(recorder);
  REQUIRE(r.list.size() == 3);
  CHECK(ms(r[0].starved_ns) == 40);
  CHECK(ms(r[1].asked_ns) == 40);
  CHECK(ms(r[1].starved_ns) == 40);
  CHECK(ms(r[1].blocked_ns) == 20);
  CHECK(ms(r[2].blocked_ns) == 20);
  CHECK(r[1].items == 12);
}

TEST_CASE("a generator that is dropped while it is asked, or with its item taken, leaves the stage idle") {
  testing::virtual_loop loop;
  stage_recorder recorder;
  stage_record* const top = recorder.find_or_add("sink", nullptr);
  struct one {
    static task<void> take(async_generator<packet> from) { (void)co_await from.next(); }
  };
  {
    spawned<void> dropped({loop, top}, one::take(as_stage("source", source(2, 0ms, 10ms))));
    run_turns(loop, 1);
    CHECK(loop.elapsed() == 10ms);
    CHECK_FALSE(dropped.done());
  }
  block_on({loop, top}, one::take(as_stage("source", source(2, 0ms, 10ms))));  // its second item is not asked for
  const duration before = loop.elapsed();
  block_on({loop, top}, one::take(as_stage("source", source(2, 0ms, 10ms))));
  const rows r(recorder);
  REQUIRE(r.list.size() == 2);
  CHECK(before == 20ms);
  CHECK(ms(r[0].starved_ns) == 30);
  CHECK(ms(r[1].asked_ns) == 30);
  CHECK(ms(r[1].blocked_ns) == 0);
}

TEST_CASE("what was made before the recorder has a record each, what was made later one for each name and consumer") {
  const std::int64_t early = monotonic_ns();
  stage_recorder recorder;
  constexpr std::int64_t late = INT64_MAX;
  stage_record* const sink = recorder.find_or_add("sink", nullptr);
  stage_record* const a = recorder.record_for("map", "advice", sink, early);
  stage_record* const b = recorder.record_for("map", nullptr, sink, early);
  CHECK(a != b);
  CHECK(a->advice == std::string("advice"));
  stage_record* const inner = recorder.record_for("map", nullptr, sink, late);
  CHECK(inner != a);
  CHECK(inner != b);
  CHECK(recorder.record_for("map", nullptr, sink, late) == inner);
  CHECK(recorder.record_for("map", nullptr, a, late) != inner);
}

TEST_CASE("two pipelines on one loop keep separate accounts") {
  testing::virtual_loop loop;
  stage_recorder left_recorder;
  stage_recorder right_recorder;
  spawned<int> left({loop, left_recorder.find_or_add("sink", nullptr)},
                     sink(as_stage("source", source(5, 1ms, 10ms)), 1ms));
  spawned<int> right({loop, right_recorder.find_or_add("sink", nullptr)},
                     sink(as_stage("source", source(5, 2ms, 20ms)), 2ms));
  loop.run_until([&] { return left.done() && right.done(); });
  const rows l(left_recorder);
  const rows r(right_recorder);
  CHECK(ms(l[0].busy_ns) == 5);
  CHECK(ms(l[1].busy_ns) == 5);
  CHECK(ms(r[0].busy_ns) == 10);
  CHECK(ms(r[1].busy_ns) == 10);
  CHECK(l[1].items == 5);
  CHECK(r[1].items == 5);
}

TEST_CASE("an end without items and an error are settled like an item") {
  struct stages {
    static async_generator<packet> none() {
      co_await compute_for(3ms);
      co_await virtual_sleep(2ms);
    }
    static async_generator<packet> broken() {
      co_await compute_for(3ms);
      throw 1;
      co_yield packet(1);
    }
  };
  testing::virtual_loop loop;
  stage_recorder recorder;
  stage_record* const top = recorder.find_or_add("sink", nullptr);
  block_on({loop, top}, sink(as_stage("none", stages::none()), 0ms));
  CHECK_THROWS_AS(block_on({loop, top}, sink(as_stage("broken", stages::broken()), 0ms)), int);
  const rows r(recorder);
  CHECK(ms(r[0].starved_ns) == 8);
  CHECK(ms(r[0].busy_ns) == 0);
  CHECK(r[1].items == 0);
  CHECK(ms(r[1].asked_ns) == 5);
  CHECK(ms(r[2].asked_ns) == 3);
  CHECK(ms(r[2].busy_ns) == 3);
}

TEST_CASE("a dropped next() is charged once") {
  testing::virtual_loop loop;
  stage_recorder recorder;
  stage_record* const top = recorder.find_or_add("sink", nullptr);
  auto g = as_stage("source", source(2, 1ms, 10ms));
  struct one {
    static task<void> take(async_generator<packet>& from) { (void)co_await from.next(); }
  };
  {
    spawned<void> dropped({loop, top}, one::take(g));
    run_turns(loop, 1);
    CHECK_FALSE(dropped.done());
  }
  run_until_idle(loop);  // the source goes on to its yield
  CHECK(loop.elapsed() == 11ms);
  block_on({loop, top}, one::take(g));
  CHECK(loop.elapsed() == 11ms);
  const rows r(recorder);
  CHECK(r[1].items == 1);
  CHECK(ms(r[1].busy_ns) == 1);
  CHECK(ms(r[1].asked_ns) == 11);
}
