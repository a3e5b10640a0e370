// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/io/loop_group.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/io/run_on.hpp>

#include "tests/loop/loops.hpp"
#include "tests/support/catch.hpp"

namespace millrace::test {
namespace {

task<std::thread::id> thread_of_task() { co_return std::this_thread::get_id(); }

/// The thread of each loop whose turn it is.
task<std::vector<std::thread::id>> threads_of_turns(loop_group& group, int turns) {
  std::vector<std::thread::id> ids;
  for (int i = 0; i < turns; ++i) {
    auto make = [] { return thread_of_task(); };
    ids.push_back(co_await run_on(group.next(), make));
  }
  co_return ids;
}

TEST_CASE("the loops of a group have their turns one after the other, each on a thread of its own", "[io]") {
  const std::unique_ptr<event_loop> home = make_event_loop();
  loop_group& group = home->service<loop_group>([&] { return std::make_unique<loop_group>(*home, 3); });
  REQUIRE(group.size() == 3);
  std::map<executor*, int> turns;
  for (int i = 0; i < 9; ++i) {
    executor& next = group.next();
    const bool is_home = &next == home.get();
    CHECK(is_home == (i % 3 == 0));
    ++turns[&next];
  }
  REQUIRE(turns.size() == 3);
  for (const auto& [loop, count] : turns) CHECK(count == 3);

  const std::vector<std::thread::id> ids = block_on(*home, threads_of_turns(group, 6));
  CHECK(ids[0] == std::this_thread::get_id());
  CHECK(std::set<std::thread::id>(ids.begin(), ids.end()).size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(ids[i] == ids[i + 3]);
}

TEST_CASE("a group of one loop has that loop's turn always, and no thread", "[io]") {
  const std::unique_ptr<event_loop> home = make_event_loop();
  loop_group group(*home, 1);
  CHECK(group.size() == 1);
  for (int i = 0; i < 3; ++i) CHECK(&group.next() == home.get());
}

}  // namespace
}  // namespace millrace::test
