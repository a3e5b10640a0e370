// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/executor.hpp>

#include "tests/support/catch.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/coro/support.hpp"

using millrace::duration;
using millrace::rng;
using millrace::time_point;
using millrace::timer_node;
using millrace::timer_queue;

namespace {

class probe final : public timer_node {
 public:
  explicit probe(std::vector<int>& log, int id = 0) : log_(log), id_(id) {}
  std::vector<timer_node*> remove_on_fire;
  std::vector<std::pair<timer_node*, time_point>> add_on_fire;
  timer_queue* queue = nullptr;

 private:
  void fire() noexcept override {
    log_.push_back(id_);
    for (timer_node* n : remove_on_fire) queue->remove(*n);
    for (auto& [n, due] : add_on_fire) queue->add(*n, due);
  }
  std::vector<int>& log_;
  int id_;
};

time_point at(int t) { return time_point(duration(t)); }

}  // namespace

TEST_CASE("timers fire in order of time, equal times in order of arming") {
  std::vector<int> log;
  timer_queue queue;
  probe a(log, 1), b(log, 2), c(log, 3), d(log, 4);
  queue.add(a, at(20));
  queue.add(b, at(10));
  queue.add(c, at(20));
  queue.add(d, at(10));
  CHECK(queue.size() == 4);
  CHECK(queue.next() == at(10));
  CHECK(queue.fire_due(at(9)) == 0);
  CHECK(queue.fire_due(at(10)) == 2);
  CHECK(log == std::vector<int>{2, 4});
  CHECK(queue.next() == at(20));
  CHECK(queue.fire_due(at(100)) == 2);
  CHECK(log == std::vector<int>{2, 4, 1, 3});
  CHECK(queue.empty());
  CHECK_FALSE(a.armed());
}

TEST_CASE("arming again moves a timer, removing an idle one does nothing") {
  std::vector<int> log;
  timer_queue queue;
  probe a(log, 1), b(log, 2);
  queue.add(a, at(10));
  queue.add(b, at(20));
  queue.add(a, at(30));
  CHECK(queue.size() == 2);
  CHECK(a.armed());
  queue.remove(b);
  queue.remove(b);
  CHECK_FALSE(b.armed());
  CHECK(queue.fire_due(at(29)) == 0);
  CHECK(queue.fire_due(at(30)) == 1);
  CHECK(log == std::vector<int>{1});
}

TEST_CASE("firing timers may remove and add timers") {
  std::vector<int> log;
  timer_queue queue;
  probe a(log, 1), b(log, 2), c(log, 3), d(log, 4);
  for (probe* p : {&a, &b, &c, &d}) p->queue = &queue;
  a.remove_on_fire = {&b, &a};
  a.add_on_fire = {{&d, at(5)}, {&a, at(10)}};
  queue.add(a, at(10));
  queue.add(b, at(11));
  queue.add(c, at(4));
  CHECK(queue.fire_due(at(20)) == 2);  // what was armed meanwhile waits for the next call
  CHECK(log == std::vector<int>{3, 1});
  CHECK(queue.size() == 2);
  a.add_on_fire.clear();
  CHECK(queue.fire_due(at(20)) == 2);
  CHECK(log == std::vector<int>{3, 1, 4, 1});
}

TEST_CASE("a timer that arms itself in the past does not block others for ever") {
  std::vector<int> log;
  timer_queue queue;
  probe a(log, 1), b(log, 2);
  a.queue = &queue;
  a.add_on_fire = {{&a, at(0)}};
  queue.add(a, at(0));
  queue.add(b, at(10));
  queue.fire_due(at(20));
  queue.fire_due(at(21));
  CHECK(std::count(log.begin(), log.end(), 2) == 1);
  queue.remove(a);
}

TEST_CASE("a timer queue agrees with a sorted list") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    rng random(seed);
    std::vector<int> log;
    timer_queue queue;
    std::deque<probe> timers;
    for (int i = 0; i < 40; ++i) timers.emplace_back(log, i);
    std::map<std::pair<int, int>, int> reference;  // (due, order) -> id
    std::map<int, std::pair<int, int>> armed;
    int order = 0;
    int now = 0;
    for (int step = 0; step < 400; ++step) {
      const auto id = static_cast<int>(random.below(timers.size()));
      probe& timer = timers[static_cast<std::size_t>(id)];
      switch (random.below(4)) {
        case 0:
        case 1: {
          const int due = now + static_cast<int>(random.below(30));
          queue.add(timer, at(due));
          if (armed.count(id) != 0) reference.erase(armed[id]);
          armed[id] = {due, ++order};
          reference[armed[id]] = id;
          break;
        }
        case 2:
          queue.remove(timer);
          if (armed.count(id) != 0) reference.erase(armed[id]);
          armed.erase(id);
          break;
        default: {
          now += static_cast<int>(random.below(10));
          log.clear();
          queue.fire_due(at(now));
          std::vector<int> expected;
          while (!reference.empty() && reference.begin()->first.first <= now) {
            expected.push_back(reference.begin()->second);
            armed.erase(reference.begin()->second);
            reference.erase(reference.begin());
          }
          REQUIRE(log == expected);
        }
      }
      REQUIRE(queue.size() == reference.size());
      REQUIRE(timer.armed() == (armed.count(id) != 0));
      if (!reference.empty()) REQUIRE(queue.next() == at(reference.begin()->first.first));
    }
    for (probe& timer : timers) queue.remove(timer);
  }
}

TEST_CASE("a timer that is destroyed while it is armed ends the process with a reason") {
  CHECK(millrace::test::death_message([] {
          std::vector<int> log;
          timer_queue queue;
          probe a(log);
          queue.add(a, at(1));
        }).find("armed") != std::string::npos);
}

TEST_CASE("timers may outlive the queue") {
  std::vector<int> log;
  probe a(log);
  {
    timer_queue queue;
    queue.add(a, at(1));
  }
  CHECK_FALSE(a.armed());
}
