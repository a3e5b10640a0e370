// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/combine.hpp>

#include <memory>
#include <string>
#include <tuple>

#include <millrace/flow/buffer.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/testing/scripted_source.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace flow_tests;
using mill::testing::scripted_source;
using mill::testing::virtual_loop;

namespace {

TEST_CASE("zip makes rows until one source ends") {
  auto rows = run(mill::zip(mill::iota(3), mill::iota(10, 20),
                            mill::iota(5) | mill::map([](int x) { return std::make_unique<int>(x); })));
  REQUIRE(rows.size() == 3);
  CHECK(std::get<0>(rows[2]) == 2);
  CHECK(std::get<1>(rows[2]) == 12);
  CHECK(*std::get<2>(rows[2]) == 2);
  CHECK(run(mill::zip(mill::iota(0), mill::iota(3))).empty());
  CHECK(run(mill::zip(mill::iota(4))).size() == 4);
}

TEST_CASE("zip_equal refuses sources of different lengths") {
  virtual_loop loop;
  CHECK(run(mill::zip_equal(mill::iota(3), mill::iota(3))).size() == 3);
  auto seen = run_to_error(loop, mill::zip_equal(mill::iota(3), mill::iota(2), mill::iota(3)));
  CHECK(seen.items.size() == 2);
  CHECK(seen.error == "zip_equal: 1 of 3 sources ended before the others");
  seen = run_to_error(loop, mill::zip_equal(mill::iota(2), mill::iota(2), mill::iota(3)));
  CHECK(seen.error == "zip_equal: 2 of 3 sources ended before the others");
}

TEST_CASE("zip throws what a source throws") {
  virtual_loop loop;
  scripted_source<int> script;
  script.item(1).fail(std::make_exception_ptr(std::runtime_error("source")));
  const auto seen = run_to_error(loop, mill::zip(mill::iota(5), script.open()));
  CHECK(seen.items.size() == 1);
  CHECK(seen.error == "source");
}

TEST_CASE("concat asks one source after the other and drops each at its end") {
  CHECK(run(mill::concat(mill::iota(2), mill::iota(0), mill::iota(10, 12))) == ints{0, 1, 10, 11});
  CHECK(run(mill::concat(std::vector<mill::stream<int>>())).empty());
  virtual_loop loop;
  scripted_source<int> a, b;
  a.item(1);
  b.item(2).never();
  auto both = mill::concat(a.open(), b.open());
  CHECK(run_some(loop, both, 1) == ints{1});
  CHECK(b.asked() == 0);
  CHECK(run_some(loop, both, 1) == ints{2});
  CHECK(!a.open_now());
}

std::vector<mill::stream<int>> three(int length) {
  std::vector<mill::stream<int>> all;
  for (int i = 0; i < 3; ++i) all.push_back(mill::iota(1000 * i, 1000 * i + length));
  return all;
}

TEST_CASE("mix draws from the sources in proportion to their weights") {
  virtual_loop loop;
  auto source = mill::mix(three(1000), {5, 0, 3}, {.seed = 11});
  const ints some = run_some(loop, source, 800);
  std::size_t from[3] = {};
  int next[3] = {0, 1000, 2000};
  for (int x : some) {
    const auto s = static_cast<std::size_t>(x / 1000);
    ++from[s];
    REQUIRE(x == next[s]++);
  }
  CHECK(from[0] > 450);
  CHECK(from[0] < 550);
  CHECK(from[1] == 0);
}

TEST_CASE("mix is the same function of seed and epoch everywhere") {
  auto order = [](std::uint64_t seed, std::uint64_t epoch) {
    return run(mill::mix(three(4), {2, 1, 1}, {.seed = seed, .epoch = epoch}));
  };
  CHECK(order(1, 0) == ints{2000, 0, 2001, 1, 1000, 2002, 2, 3, 2003, 1001, 1002, 1003});
  CHECK(order(1, 0) != order(2, 0));
  CHECK(order(1, 0) != order(1, 1));
  CHECK(order(1, 0).size() == 12);
}

TEST_CASE("mix ends with the last source or with the first") {
  std::vector<mill::stream<int>> uneven;
  uneven.push_back(mill::iota(5));
  uneven.push_back(mill::iota(1000, 1100));
  CHECK(run(mill::mix(std::move(uneven), {1, 1})).size() == 105);
  uneven.clear();
  uneven.push_back(mill::iota(5));
  uneven.push_back(mill::iota(1000, 1100));
  const ints some = run(mill::mix(std::move(uneven), {1, 1}, {.end = mill::mix_end::first}));
  CHECK(some.size() < 40);
}

TEST_CASE("mix refuses weights that do not fit") {
  CHECK_THROWS_AS(mill::mix(three(1), {1, 1}), mill::configuration_error);
  CHECK_THROWS_AS(mill::mix(three(1), {0, 0, 0}), mill::configuration_error);
  CHECK_THROWS_AS(mill::mix(three(1), {UINT64_MAX, 1, 0}), mill::configuration_error);
}

TEST_CASE("what the sources declared is listed") {
  auto buffered = [] { return mill::iota(3) | mill::buffer({.items = 4}); };
  CHECK(mill::zip(buffered(), mill::iota(1), buffered()).bounds().size() == 2);
  CHECK(mill::concat(buffered(), buffered()).bounds().size() == 2);
  std::vector<mill::stream<int>> one;
  one.push_back(buffered());
  CHECK(mill::mix(std::move(one), {1}).bounds().size() == 1);
}

}  // namespace
