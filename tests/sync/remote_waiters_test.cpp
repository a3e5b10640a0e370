// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/sync/remote_waiters.hpp>

#include "tests/support/catch.hpp"

#include <mutex>
#include <string>
#include <thread>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

struct shared_counter {
  void go_up() {
    const std::lock_guard lock(mutex);
    ++count;
    waiters.wake_all();
  }
  std::mutex mutex;
  std::uint64_t count = 0;
  remote_waiters waiters;
};

task<void> wait_for(shared_counter& c, std::uint64_t seen, std::string& log, char name) {
  co_await c.waiters.until_above(seen, c.count, c.mutex);
  log += name;
}

}  // namespace

TEST_CASE("waiters of several executors are woken on their own when the counter goes up", "[sync]") {
  testing::virtual_loop here;
  testing::virtual_loop there;
  shared_counter c;
  std::string log_here;
  std::string log_there;
  spawned<void> a(here, wait_for(c, 0, log_here, 'a'));
  spawned<void> b(there, wait_for(c, 0, log_there, 'b'));
  run_until_idle(here);
  run_until_idle(there);
  CHECK((log_here + log_there).empty());
  std::thread(&shared_counter::go_up, &c).join();
  CHECK((log_here + log_there).empty());  // not on the thread that went up
  run_until_idle(here);
  CHECK(log_here == "a");
  CHECK(log_there.empty());
  run_until_idle(there);
  CHECK(log_there == "b");
  // What has happened already is not waited for.
  spawned<void> late(here, wait_for(c, 0, log_here, 'l'));
  run_until_idle(here);
  CHECK(log_here == "al");
  CHECK(late.done());
}

TEST_CASE("a dropped waiter is woken by nothing, before the counter goes up and after", "[sync]") {
  for (const bool woken : {false, true}) {
    testing::virtual_loop loop;
    shared_counter c;
    std::string log;
    spawned<void> dropped(loop, wait_for(c, 0, log, 'd'));
    spawned<void> kept(loop, wait_for(c, 0, log, 'k'));
    run_until_idle(loop);
    if (woken) c.go_up();
    dropped = spawned<void>();
    if (!woken) c.go_up();
    run_until_idle(loop);
    CHECK(log == "k");
    CHECK(loop.frames() == 1);
    loop.drain();
  }
}

TEST_CASE("an executor may end once its waiters are dropped", "[sync]") {
  shared_counter c;
  std::string log;
  {
    testing::virtual_loop loop;
    spawned<void> dropped(loop, wait_for(c, 0, log, 'd'));
    run_until_idle(loop);
    dropped = spawned<void>();
  }
  c.go_up();
  CHECK(log.empty());
}
