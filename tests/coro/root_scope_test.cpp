// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/root_scope.hpp>

#include "tests/support/catch.hpp"

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

task<void> clean_up(duration d, int& done, tracked = tracked()) {
  co_await virtual_sleep(d);
  ++done;
}
task<void> broken() {
  co_await virtual_sleep(1ms);
  throw std::runtime_error("clean-up failed");
}

// What a stage does that must say goodbye to a server: its destructor leaves that to the root scope.
class upload {
 public:
  upload(executor& ex, int& done) : executor_(ex), done_(done) {}
  ~upload() { root_scope::of(executor_).adopt(clean_up(50ms, done_)); }

 private:
  executor& executor_;
  int& done_;
};
task<void> uploading(int& done) {
  upload u(co_await this_executor(), done);
  co_await virtual_sleep(1000ms);
}

}  // namespace

TEST_CASE("clean-up of a dropped coroutine runs to its end before block_on returns") {
  testing::virtual_loop loop;
  tracked::reset();
  int done = 0;
  struct local {
    static task<void> drop_one(executor& ex, int& d) {
      spawned<void> s(ex, uploading(d));
      co_await virtual_sleep(10ms);
    }
  };
  block_on(loop, local::drop_one(loop, done));
  CHECK(done == 1);
  CHECK(loop.elapsed() == 60ms);
  CHECK(loop.background() == 0);
  CHECK(loop.frames() == 0);  // nothing of it is left
  CHECK(tracked::clean());
}

TEST_CASE("there is one root scope for each executor") {
  testing::virtual_loop one;
  testing::virtual_loop two;
  CHECK(&root_scope::of(one) == &root_scope::of(one));
  CHECK(&root_scope::of(one) != &root_scope::of(two));
}

TEST_CASE("clean-up that fails is counted and harms nothing else") {
  testing::virtual_loop loop;
  int done = 0;
  root_scope::of(loop).adopt(broken());
  root_scope::of(loop).adopt(clean_up(5ms, done));
  root_scope::of(loop).adopt(broken());
  CHECK(loop.background() == 3);
  loop.drain();
  CHECK(root_scope::of(loop).failures() == 2);
  CHECK(done == 1);
  CHECK(loop.frames() == 0);
}

TEST_CASE("clean-up may ask for more clean-up") {
  struct local {
    static task<void> chain(executor& ex, int depth, int& done) {
      co_await virtual_sleep(1ms);
      ++done;
      if (depth > 0) root_scope::of(ex).adopt(chain(ex, depth - 1, done));
    }
  };
  testing::virtual_loop loop;
  int done = 0;
  root_scope::of(loop).adopt(local::chain(loop, 9, done));
  loop.drain();
  CHECK(done == 10);
  CHECK(loop.elapsed() == 10ms);
  CHECK(loop.frames() == 0);
}

TEST_CASE("an executor that ends waits for the clean-up") {
  tracked::reset();
  int done = 0;
  {
    testing::virtual_loop loop;
    root_scope::of(loop).adopt(clean_up(20ms, done, tracked(1)));
    { spawned<void> s(loop, uploading(done)); }  // never ran: nothing to clean up
    spawned<void> s(loop, uploading(done));
    run_turns(loop, 1);
    s = spawned<void>();
  }
  CHECK(done == 2);
  CHECK(tracked::clean());
}

TEST_CASE("clean-up that was asked for while services end is run, too") {
  static int done;
  done = 0;
  struct client final : executor_service {
    explicit client(executor& e) : ex(e) {}
    ~client() override { root_scope::of(ex).adopt(clean_up(5ms, done)); }
    executor& ex;
  };
  SECTION("the root scope is older") {
    testing::virtual_loop loop;
    root_scope::of(loop);
    loop.service<client>(loop);
  }
  SECTION("the root scope is younger") {
    testing::virtual_loop loop;
    loop.service<client>(loop);
    root_scope::of(loop);
  }
  SECTION("the root scope was never there") {
    testing::virtual_loop loop;
    loop.service<client>(loop);
  }
  CHECK(done == 1);
}

TEST_CASE("a drain waits a moment for what can be begun again elsewhere, and then drops it") {
  testing::virtual_loop loop;
  tracked::reset();
  int done = 0;
  struct local {
    static task<void> leave(executor& ex, duration d, int& count) {
      root_scope::of(ex).adopt_droppable(clean_up(d, count, tracked(1)));
      co_return;
    }
  };
  SECTION("it ends in time") {
    block_on(loop, local::leave(loop, 40ms, done));
    CHECK(done == 1);
    CHECK(loop.elapsed() == 40ms);
  }
  SECTION("it takes too long") {
    block_on(loop, local::leave(loop, 1h, done));
    CHECK(done == 0);
    CHECK(loop.elapsed() == root_scope::patience);
  }
  SECTION("while there is clean-up to wait for it has time") {
    root_scope::of(loop).adopt(clean_up(1min, done));
    block_on(loop, local::leave(loop, 59s, done));
    CHECK(done == 2);
    CHECK(loop.elapsed() == 1min);
  }
  SECTION("clean-up may begin it") {
    struct cleaner {
      static task<void> run(executor& ex, int& count) {
        co_await virtual_sleep(1s);
        root_scope::of(ex).adopt_droppable(clean_up(1h, count, tracked(1)));
        root_scope::of(ex).adopt_droppable(clean_up(20ms, count, tracked(1)));
        ++count;
      }
    };
    root_scope::of(loop).adopt(cleaner::run(loop, done));
    loop.drain();
    CHECK(done == 2);
    CHECK(loop.elapsed() == 1s + root_scope::patience);
  }
  CHECK(loop.background() == 0);
  CHECK(loop.timers() == 0);
  CHECK(loop.frames() == 0);
  CHECK(tracked::clean());
}

TEST_CASE("what is dropped by a drain may leave clean-up, which is run") {
  testing::virtual_loop loop;
  int done = 0;
  root_scope::of(loop).adopt_droppable(uploading(done));
  loop.drain();
  CHECK(done == 1);
  CHECK(loop.elapsed() == root_scope::patience + 50ms);
  CHECK(loop.frames() == 0);
}

TEST_CASE("tasks that end together, among many that do not, are let go") {
  constexpr std::size_t each = 1000;
  testing::virtual_loop loop;
  root_scope& scope = root_scope::of(loop);
  int done = 0;
  for (std::size_t i = 0; i < each; ++i) {
    scope.adopt(clean_up(1ms, done));
    scope.adopt(clean_up(2ms, done));
    scope.adopt_droppable(clean_up(1h, done));
  }
  loop.drain();
  CHECK(done == 2 * each);
  CHECK(loop.frames() == 0);
  // Three times something ended: after 1 ms, after 2 ms, when patience did. All of it is let go in one look at all.
  CHECK(scope.looks() == (3 + 2 + 1) * each);
}
