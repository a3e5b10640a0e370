// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/executor.hpp>

#include "tests/support/catch.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <millrace/coro/root_scope.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

class counted_message final : public remote_node {
 public:
  counted_message(executor& ex, std::vector<int>& log, int id) : executor_(ex), log_(log), id_(id) {}

 private:
  void run() noexcept override {
    log_.push_back(id_);
    executor_.operation_finished();
  }
  executor& executor_;
  std::vector<int>& log_;
  int id_;
};

// Frees itself when it has run: the executor must not touch a node after run().
class one_shot final : public remote_node {
 public:
  one_shot(executor& ex, long& ran) : executor_(ex), ran_(ran) {}

 private:
  void run() noexcept override {
    ++ran_;
    executor_.operation_finished();
    delete this;
  }
  executor& executor_;
  long& ran_;
};

task<void> yield_times(int n, std::string& log, char name) {
  for (int i = 0; i < n; ++i) {
    log += name;
    co_await yield_now();
  }
}

}  // namespace

TEST_CASE("coroutines take turns in the order in which they became ready") {
  testing::virtual_loop loop;
  std::string log;
  spawned<void> a(loop, yield_times(3, log, 'a'));
  spawned<void> b(loop, yield_times(2, log, 'b'));
  spawned<void> c(loop, yield_times(3, log, 'c'));
  run_until_idle(loop);
  CHECK(log == "abcabcac");
}

TEST_CASE("a turn is bounded: what becomes ready meanwhile waits for the next one") {
  testing::virtual_loop loop;
  std::string log;
  spawned<void> a(loop, yield_times(1000, log, 'a'));
  run_turns(loop, 5);
  CHECK(log == "aaaaa");
}

TEST_CASE("a shuffled queue runs everything, in another order, the same for the same seed") {
  std::string logs[3];
  for (int i = 0; i < 3; ++i) {
    testing::virtual_loop loop(i < 2 ? 7u : 8u);
    std::vector<spawned<void>> tasks;
    for (char name = 'a'; name <= 'p'; ++name) tasks.emplace_back(loop, yield_times(3, logs[i], name));
    run_until_idle(loop);
    for (spawned<void>& t : tasks) CHECK(t.done());
  }
  CHECK(logs[0] == logs[1]);
  CHECK(logs[0] != logs[2]);
  CHECK(logs[0].substr(0, 16) != "abcdefghijklmnop");
  CHECK(logs[0].size() == 48);
}

TEST_CASE("messages of one thread arrive in order, and each runs once") {
  testing::virtual_loop loop;
  std::vector<int> log;
  std::vector<std::unique_ptr<counted_message>> messages;
  for (int i = 0; i < 10; ++i) {
    messages.push_back(std::make_unique<counted_message>(loop, log, i));
    loop.operation_started();
    loop.post_remote(*messages.back());
  }
  loop.drain();
  CHECK(log == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(loop.operations() == 0);
}

TEST_CASE("messages of many threads arrive while the loop sleeps and while it works") {
  constexpr int threads = 4;
  constexpr int each = 5000;
  long ran = 0;
  {
    testing::virtual_loop loop;
    for (int i = 0; i < threads * each; ++i) loop.operation_started();
    std::vector<std::thread> posting;
    for (int t = 0; t < threads; ++t) {
      posting.emplace_back([&loop, &ran] {
        for (int i = 0; i < each; ++i) {
          loop.post_remote(*new one_shot(loop, ran));
          if (i % 500 == 0) std::this_thread::yield();
        }
      });
    }
    std::string log;
    block_on(loop, yield_times(100, log, 'x'));  // also drains: all messages have run
    CHECK(ran == threads * each);
    for (std::thread& t : posting) t.join();
  }
}

TEST_CASE("the executor may be destroyed as soon as the last message has run") {
  for (int i = 0; i < 300; ++i) {
    long ran = 0;
    std::thread poster;
    {
      testing::virtual_loop loop;
      loop.operation_started();
      poster = std::thread([&loop, &ran] { loop.post_remote(*new one_shot(loop, ran)); });
    }  // waits for the message, then goes, whether or not the poster has returned
    CHECK(ran == 1);
    poster.join();
  }
}

TEST_CASE("a message that was not announced still runs before the executor ends") {
  struct quiet final : remote_node {
    explicit quiet(bool& r) : ran(r) {}
    void run() noexcept override { ran = true; }
    bool& ran;
  };
  bool ran = false;
  quiet message(ran);
  {
    testing::virtual_loop loop;
    loop.post_remote(message);
  }
  CHECK(ran);
}

TEST_CASE("a remote message wakes a coroutine") {
  struct waking final : remote_node {
    explicit waking(gate& to_open, executor& on) : opened(to_open), ex(on) {}
    void run() noexcept override {
      opened.post();
      ex.operation_finished();
    }
    gate& opened;
    executor& ex;
  };
  struct local {
    static task<int> wait_for(gate& g, waking& message, std::thread& poster) {
      executor& ex = co_await this_executor();
      ex.operation_started();
      poster = std::thread([&ex, &message] { ex.post_remote(message); });
      co_await g.wait();  // the message is run between coroutines, so not before this
      co_return 5;
    }
  };
  testing::virtual_loop loop;
  gate g;
  waking message(g, loop);
  std::thread poster;
  CHECK(block_on(loop, local::wait_for(g, message, poster)) == 5);
  poster.join();
}

TEST_CASE("the inline budget, once used up, stays so until the next turn") {
  const int hops = GENERATE(-5, 0, 1, 2, executor::inline_budget);
  testing::virtual_loop loop;
  loop.set_inline_budget(hops);
  struct local {
    static task<std::vector<int>> spend() {
      executor& ex = co_await this_executor();
      std::vector<int> granted;
      for (int turn = 0; turn < 3; ++turn) {
        co_await yield_now();
        int n = 0;
        for (int i = 0; i < 1000; ++i) n += ex.spend_inline() ? 1 : 0;
        granted.push_back(n);
      }
      co_return granted;
    }
  };
  CHECK(block_on(loop, local::spend()) == std::vector<int>(3, std::max(hops, 1) - 1));
}

TEST_CASE("there is one service of each type, for all callers; they end in reverse order before the executor") {
  static std::string log;
  struct first final : executor_service {
    ~first() override { log += '1'; }
  };
  struct second final : executor_service {
    explicit second(executor& e) : ex(e) {
      ex.service<first>();
      log += 'm';
    }
    ~second() override { log += '2'; }
    executor& ex;
  };
  log.clear();
  {
    testing::virtual_loop loop;
    second& s = loop.service<second>(loop);
    CHECK(&loop.service<second>(std::as_const(s).ex) == &s);  // the type alone counts, not what the arguments are
    first& f = loop.service<first>();
    CHECK(&loop.service<first>() == &f);
    CHECK(log == "m");
  }
  CHECK(log == "m21");
}

TEST_CASE("a service that ends may ask for services") {
  static std::string log;
  struct late final : executor_service {
    ~late() override { log += 'l'; }
  };
  struct asking final : executor_service {
    explicit asking(executor& e) : ex(e) {}
    ~asking() override {
      ex.service<late>();
      log += 'a';
    }
    executor& ex;
  };
  log.clear();
  {
    testing::virtual_loop loop;
    loop.service<asking>(loop);
  }
  CHECK(log == "al");
}

TEST_CASE("a service whose making fails is made again") {
  struct fragile final : executor_service {
    explicit fragile(bool fails) {
      if (fails) throw 1;
    }
  };
  testing::virtual_loop loop;
  CHECK_THROWS_AS(loop.service<fragile>(true), int);
  CHECK_NOTHROW(loop.service<fragile>(false));
}

TEST_CASE("an idle loop with a waiting coroutine is a deadlock") {
  struct local {
    static task<void> forever(gate& g, tracked) { co_await g.wait(); }
  };
  tracked::reset();
  testing::virtual_loop loop;
  gate g;
  CHECK_THROWS_AS(block_on(loop, local::forever(g, tracked(1))), testing::deadlock);
  CHECK(loop.frames() == 0);
  CHECK(tracked::clean());
  int x = 0;  // and the loop can be used again
  struct again {
    static task<void> set(int& v) {
      co_await virtual_sleep(1ms);
      v = 1;
    }
  };
  block_on(loop, again::set(x));
  CHECK(x == 1);
}

TEST_CASE("virtual time jumps to the next timer and is exact") {
  struct local {
    static task<void> stamp(testing::virtual_loop& loop, duration d, std::string& log) {
      co_await virtual_sleep(d);
      log += std::to_string(loop.elapsed().count() / 1000000) + " ";
    }
  };
  testing::virtual_loop loop;
  std::string log;
  spawned<void> a(loop, local::stamp(loop, 30ms, log));
  spawned<void> b(loop, local::stamp(loop, 10ms, log));
  spawned<void> c(loop, local::stamp(loop, 20ms, log));
  spawned<void> d(loop, local::stamp(loop, 0ms, log));
  loop.run_for(30ms);
  CHECK(log == "0 10 20 30 ");
  CHECK(loop.elapsed() == 30ms);
}

TEST_CASE("an executor that is run inside one of its coroutines says so, and goes on") {
  struct local {
    static task<void> nested(executor& ex) {
      std::string log;
      block_on(ex, yield_times(1, log, 'x'));
      co_return;
    }
  };
  testing::virtual_loop loop;
  CHECK(misuse_message([&] { block_on(loop, local::nested(loop)); }).find("inside one of its coroutines") !=
        std::string::npos);
  CHECK(loop.frames() == 0);
  std::string log;
  block_on(loop, yield_times(1, log, 'x'));
  CHECK(log == "x");
}

TEST_CASE("what a task left behind and does not end is a deadlock, as is the end of its executor") {
  struct local {
    static task<void> forever(gate& g, tracked) { co_await g.wait(); }
    static task<int> leave(gate& g) {
      executor& ex = co_await this_executor();
      root_scope::of(ex).adopt(forever(g, tracked(1)));
      co_return 7;
    }
    static task<int> leave_and_fail(gate& g) {
      (void)co_await leave(g);
      throw std::runtime_error("broken");
    }
  };
  tracked::reset();
  gate g;
  {
    testing::virtual_loop loop;
    SECTION("after a result") { CHECK_THROWS_AS(block_on(loop, local::leave(g)), testing::deadlock); }
    SECTION("after an exception, which says more") {
      CHECK_THROWS_AS(block_on(loop, local::leave_and_fail(g)), std::runtime_error);
    }
    CHECK(loop.background() == 1);
  }
  CHECK(tracked::clean());
}
