// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/failure_policy.hpp>

#include <cstdio>
#include <new>
#include <string>
#include <utility>

#include <unistd.h>

#include <millrace/coro/stage_record.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/testing/scripted_source.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace flow_tests;
using namespace std::chrono_literals;
using mill::testing::scripted_source;
using mill::testing::virtual_loop;

namespace {

constexpr mill::failure_policy quiet{.then = mill::on_failure::skip, .report = false};

int no_sevens(int x) {
  if (x % 7 == 0) throw mill::decode_error("a multiple of seven", mill::where{"shard.tar", 512, std::to_string(x)});
  return x;
}
mill::task<int> slow_no_sevens(int x) {
  co_await mill::sleep_for((x % 3) * 10ms);
  co_return no_sevens(x);
}

/// What is written to standard error while it lives.
class captured_stderr {
 public:
  captured_stderr() : file_(std::tmpfile()), before_(::dup(2)) { ::dup2(::fileno(file_), 2); }
  captured_stderr(const captured_stderr&) = delete;
  captured_stderr& operator=(const captured_stderr&) = delete;
  ~captured_stderr() { stop(); }
  std::string stop() {
    if (before_ < 0) return {};
    std::fflush(stderr);
    ::dup2(before_, 2);
    ::close(std::exchange(before_, -1));
    std::rewind(file_);
    char text[8192];
    const std::size_t n = std::fread(text, 1, sizeof text, file_);
    std::fclose(file_);
    return std::string(text, n);
  }

 private:
  std::FILE* file_;
  int before_;
};

TEST_CASE("without a policy a failure ends the stream") {
  virtual_loop loop;
  const auto seen = run_to_error(loop, mill::iota(1, 20) | mill::map(no_sevens));
  CHECK(seen.items == ints{1, 2, 3, 4, 5, 6});
  CHECK(seen.error == "shard.tar at byte 512, 7: a multiple of seven");
}

TEST_CASE("bad items are left out, in every kind of map") {
  const ints expected{1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 16};
  virtual_loop loop;
  CHECK(run(mill::iota(1, 17) | mill::map(no_sevens, quiet)) == expected);
  CHECK(run_to_error(loop, mill::iota(1, 17) | mill::map(slow_no_sevens, quiet)).items == expected);
  for (const std::size_t limit : {1u, 2u, 5u, 100u}) {
    auto source = mill::iota(1, 17) | mill::map_concurrent(slow_no_sevens, {.limit = limit, .failures = quiet});
    CHECK(run_to_error(loop, std::move(source)).items == expected);
  }
  CHECK(loop.frames() == 0);
  mill::cpu_pool pool(2);
  CHECK(run(mill::iota(1, 17) | mill::map_concurrent(no_sevens, {.on = &pool, .failures = quiet})) == expected);
}

TEST_CASE("a stream of bad items only is empty, and its bound holds") {
  virtual_loop loop;
  scripted_source<int> script;
  for (int i = 0; i < 50; ++i) script.item(7 * i);
  auto source = script.open() | mill::map_concurrent(slow_no_sevens, {.limit = 3, .failures = quiet});
  CHECK(run_to_error(loop, std::move(source)).items.empty());
  CHECK(script.given() == 50);
}

TEST_CASE("failures that were not taken count against the bound") {
  virtual_loop loop;
  scripted_source<int> script;
  for (int i = 1; i < 50; ++i) script.item(i == 1 ? 1 : 7);
  auto source = script.open() | mill::map_concurrent(slow_no_sevens, {.limit = 4, .failures = quiet});
  CHECK(run_some(loop, source, 1) == ints{1});
  auto settle = []() -> mill::task<void> { co_await mill::sleep_for(1s); };
  mill::block_on(loop, settle());
  CHECK(script.given() == 5);  // the one that was taken, and four
}

TEST_CASE("stop ends the stream before the bad item") {
  virtual_loop loop;
  constexpr mill::failure_policy stop{.then = mill::on_failure::stop, .report = false};
  const auto one = run_to_error(loop, mill::iota(1, 20) | mill::map(no_sevens, stop));
  CHECK(one.items == ints{1, 2, 3, 4, 5, 6});
  CHECK(one.error.empty());
  const auto many =
      run_to_error(loop, mill::iota(1, 20) | mill::map_concurrent(slow_no_sevens, {.limit = 4, .failures = stop}));
  CHECK(many.items == ints{1, 2, 3, 4, 5, 6});
  CHECK(many.error.empty());
}

TEST_CASE("a budget that is used up ends the stream with the list of failures") {
  virtual_loop loop;
  mill::failure_policy two = quiet;
  two.limit = 2;
  const auto seen =
      run_to_error(loop, mill::iota(1, 100) | mill::map_concurrent(slow_no_sevens, {.limit = 8, .failures = two}));
  CHECK(seen.items.size() == 18);  // up to 20, without 7 and 14
  CHECK(seen.error ==
        "map_concurrent: 3 of 21 items failed, more than the limit of 2: "
        "shard.tar at byte 512, 7: a multiple of seven; "
        "shard.tar at byte 512, 14: a multiple of seven; "
        "shard.tar at byte 512, 21: a multiple of seven");
}

TEST_CASE("a rate is judged from the thousandth item on and at the end") {
  virtual_loop loop;
  mill::failure_policy tenth = quiet;
  tenth.rate = 0.1;  // a seventh fails
  auto early = run_to_error(loop, mill::iota(1, 5000) | mill::map(no_sevens, tenth));
  CHECK(early.error.find("143 of 1001 items failed, more than the share of 0.1") != std::string::npos);
  CHECK(early.error.find("and 133 more") != std::string::npos);
  auto at_end = run_to_error(loop, mill::iota(1, 15) | mill::map(no_sevens, tenth));
  CHECK(at_end.items.size() == 12);
  CHECK(at_end.error.find("2 of 14 items failed") != std::string::npos);
  tenth.rate = 0.2;
  CHECK(run_to_error(loop, mill::iota(1, 5000) | mill::map(no_sevens, tenth)).error.empty());
}

TEST_CASE("what is not about data is never forgiven") {
  virtual_loop loop;
  auto misconfigured = [](int x) -> int {
    if (x == 2) throw mill::configuration_error("no such field");
    return x;
  };
  const auto seen = run_to_error(loop, mill::iota(5) | mill::map(misconfigured, quiet));
  CHECK(seen.items == ints{0, 1});
  CHECK(seen.error == "no such field");
  auto misused = [](int x) -> int { return x == 2 ? int(mill::bytes().slice(0, 1).size()) : x; };
  CHECK_THROWS_AS(run(mill::iota(5) | mill::map(misused, quiet)), mill::usage_error);
  auto exhausted = [](int x) -> int {
    if (x == 2) throw std::bad_alloc();
    return x;
  };
  CHECK_THROWS_AS(run(mill::iota(5) | mill::map(exhausted, quiet)), std::bad_alloc);
}

TEST_CASE("failures are counted for the stage") {
  virtual_loop loop;
  mill::stage_recorder recorder;
  mill::block_on({loop, recorder.find_or_add("sink", nullptr)},
                 mill::collect(mill::iota(1, 30) | mill::map(no_sevens, quiet)));
  std::int64_t failed = 0;
  std::int64_t items = 0;
  recorder.for_each([&](const mill::stage_record& r) {
    if (std::string(r.name) != "map") return;
    failed = r.failed;
    items = r.items;
  });
  CHECK(failed == 4);
  CHECK(items == 25);
}

TEST_CASE("failures are reported at most once a second, with their number") {
  virtual_loop loop;
  auto one_in_100_ms = [](int x) -> mill::task<int> {
    co_await mill::sleep_for(100ms);
    if (x != 0) throw mill::decode_error("bad " + std::to_string(x));
    co_return x;
  };
  captured_stderr text;
  run_to_error(loop, mill::iota(25) | mill::map(one_in_100_ms, {.then = mill::on_failure::skip}));
  CHECK(text.stop() ==
        "millrace: map: left out: bad 1\n"
        "millrace: map: left out: bad 11 (and 9 more)\n"
        "millrace: map: left out: bad 21 (and 9 more)\n"
        "millrace: map: 3 more were left out\n");
}

}  // namespace
