// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/run_budget.hpp>

#include <millrace/coro/stage_record.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

TEST_CASE("of a budget no more is taken than it has left") {
  run_budget b(100);
  CHECK(b.take(60));
  CHECK_FALSE(b.take(41));
  CHECK(b.take(40));
  CHECK_FALSE(b.take(1));
  CHECK(b.take(0));
  b.give_back(30);
  CHECK(b.take(30));
  CHECK_FALSE(b.take(1));
}

TEST_CASE("half of a budget is taken, or less, and the rest is for the next one") {
  run_budget b(101);
  CHECK(b.take_half(1000) == 50);
  CHECK(b.take_half(10) == 10);
  CHECK(b.take_half(1000) == 20);
  CHECK(b.take(21));
  CHECK(b.take_half(1000) == 0);
}

TEST_CASE("a run without a budget gives whatever it is asked for") {
  run_budget b(run_budget::unlimited);
  CHECK(b.take(SIZE_MAX));
  CHECK(b.take_half(1000) == 1000);
  b.give_back(1000);
  CHECK(b.take(SIZE_MAX));
}

TEST_CASE("a stage finds the budget of its run, and none where there is no run") {
  run_budget b(1);
  stage_recorder recorder;
  stage_record* const sink = recorder.find_or_add("sink", nullptr);
  CHECK(run_budget::of(nullptr) == nullptr);
  CHECK(run_budget::of(sink) == nullptr);
  recorder.set_budget(&b);
  CHECK(run_budget::of(recorder.find_or_add("stage", sink)) == &b);
}
