// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/sync/event.hpp>

#include "tests/support/catch.hpp"

#include <string>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

task<void> wait_for(event& e, std::string& log, char name) {
  co_await e.wait();
  log += name;
}

}  // namespace

TEST_CASE("an event that is set does not wait") {
  testing::virtual_loop loop;
  event e;
  CHECK_FALSE(e.is_set());
  e.set();
  CHECK(e.is_set());
  std::string log;
  block_on(loop, wait_for(e, log, 'a'));
  block_on(loop, wait_for(e, log, 'b'));
  CHECK(log == "ab");
}

TEST_CASE("setting wakes all waiters, in order, also when the event is reset before they run") {
  testing::virtual_loop loop;
  event e;
  std::string log;
  spawned<void> a(loop, wait_for(e, log, 'a'));
  spawned<void> b(loop, wait_for(e, log, 'b'));
  spawned<void> c(loop, wait_for(e, log, 'c'));
  run_until_idle(loop);
  CHECK(log.empty());
  e.set();
  e.set();
  CHECK(log.empty());  // never inline
  e.reset();
  spawned<void> d(loop, wait_for(e, log, 'd'));
  run_until_idle(loop);
  CHECK(log == "abc");
  CHECK_FALSE(d.done());
  e.set();
  run_until_idle(loop);
  CHECK(log == "abcd");
}

TEST_CASE("dropped waits are unlinked, before and after the event is set") {
  testing::virtual_loop loop;
  event e;
  std::string log;
  spawned<void> a(loop, wait_for(e, log, 'a'));
  spawned<void> b(loop, wait_for(e, log, 'b'));
  spawned<void> c(loop, wait_for(e, log, 'c'));
  run_until_idle(loop);
  a = spawned<void>();
  e.set();
  b = spawned<void>();
  run_until_idle(loop);
  CHECK(log == "c");
  CHECK(loop.frames() == 1);
}
