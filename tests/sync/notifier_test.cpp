// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/sync/event.hpp>

#include "tests/support/catch.hpp"

#include <optional>
#include <string>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

task<void> wait_for(millrace::notifier& changed, const int& value, int wanted, std::string& log, char name) {
  while (value < wanted) {
    log += name;
    co_await changed.wait();
  }
  log += static_cast<char>(name - 'a' + 'A');
}

}  // namespace

TEST_CASE("a notifier wakes who waits at that moment and remembers nothing") {
  testing::virtual_loop loop;
  millrace::notifier changed;
  int value = 0;
  std::string log;
  changed.notify();
  spawned<void> a(loop, wait_for(changed, value, 1, log, 'a'));
  spawned<void> b(loop, wait_for(changed, value, 2, log, 'b'));
  run_until_idle(loop);
  CHECK(log == "ab");
  changed.notify();
  run_until_idle(loop);
  CHECK(log == "abab");
  value = 1;
  run_until_idle(loop);
  CHECK(log == "abab");
  changed.notify();
  changed.notify();
  run_until_idle(loop);
  CHECK(log == "ababAb");
  value = 2;
  changed.notify();
  run_until_idle(loop);
  CHECK(log == "ababAbB");
  CHECK(a.done());
  CHECK(b.done());
}

TEST_CASE("dropped waits are unlinked, before and after the notification") {
  testing::virtual_loop loop;
  millrace::notifier changed;
  int value = 0;
  std::string log;
  spawned<void> a(loop, wait_for(changed, value, 1, log, 'a'));
  spawned<void> b(loop, wait_for(changed, value, 1, log, 'b'));
  spawned<void> c(loop, wait_for(changed, value, 1, log, 'c'));
  run_until_idle(loop);
  a = spawned<void>();
  value = 1;
  changed.notify();
  b = spawned<void>();
  run_until_idle(loop);
  CHECK(log == "abcC");
  CHECK(loop.frames() == 1);
}

TEST_CASE("a notifier may go before waiters that are only dropped") {
  testing::virtual_loop loop;
  int value = 0;
  std::string log;
  std::optional<millrace::notifier> changed(std::in_place);
  spawned<void> a(loop, wait_for(*changed, value, 1, log, 'a'));
  run_until_idle(loop);
  changed.reset();
  a = spawned<void>();
  CHECK(loop.frames() == 0);
}
