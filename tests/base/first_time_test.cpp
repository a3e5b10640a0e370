// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/detail/first_time.hpp>

#include <atomic>
#include <cstddef>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/forget_lines.hpp"

using namespace millrace;

TEST_CASE("a line is said for the first time once") {
  test::forget_lines();
  CHECK(detail::first_time("rank 0"));
  CHECK(detail::first_time("rank 1"));
  CHECK_FALSE(detail::first_time("rank 0"));
  CHECK_FALSE(detail::first_time("rank 1"));
  CHECK(detail::first_time(""));
  CHECK_FALSE(detail::first_time(""));
}

TEST_CASE("of threads that would say the same line one does") {
  int said_in_all = 0;
  for (int round = 0; round < 40; ++round) {
    test::forget_lines();
    std::atomic<int> said{0};
    std::latch together(4);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        together.arrive_and_wait();
        for (int i = 0; i < 60; ++i) said += detail::first_time("line " + std::to_string(i)) ? 1 : 0;
      });
    }
    for (std::thread& t : threads) t.join();
    said_in_all += said;
  }
  CHECK(said_in_all == 40 * 60);
}

TEST_CASE("lines that find no place to be remembered are not said, and one line tells that") {
  test::forget_lines();
  std::string told;
  const auto add = [&](const log_record& r) { told += std::string(r.text) + '\n'; };
  set_log(add);
  for (std::size_t i = 0; i < detail::most_lines_said; ++i) REQUIRE(detail::first_time("line " + std::to_string(i)));
  CHECK(told == "");
  for (int i = 0; i < 1000; ++i) REQUIRE_FALSE(detail::first_time("one more " + std::to_string(i)));
  CHECK_FALSE(detail::first_time("line 0"));
  set_log(nullptr);
  CHECK(told ==
        "millrace: 1024 different lines of those that are logged once are in the log; further ones are left out\n");
  test::forget_lines();
}
