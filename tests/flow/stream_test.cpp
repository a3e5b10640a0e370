// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/stream.hpp>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/stage_record.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/combine.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/testing/scripted_source.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;

using flow_tests::ints;
using flow_tests::run;

namespace {

mill::async_generator<int> up_to(int n) {
  for (int i = 0; i < n; ++i) {
    int item = i;
    co_yield mill::give(item);
  }
}
/// A user's stage: nothing but coroutines and generators.
mill::async_generator<int> twice(mill::async_generator<int> in) {
  while (std::optional<int> x = co_await in.next()) {
    int item = 2 * *x;
    co_yield mill::give(item);
  }
}
/// One that says what it holds.
mill::stream<int> held(mill::async_generator<int> in) {
  return mill::stream(twice(std::move(in))).named("held").bounded(7, 70);
}
/// One that takes a stream, and is made of others.
mill::stream<int> in_parts(mill::stream<int> in) { return std::move(in) | held | mill::buffer({.items = 2}); }

mill::stream<int> of_rank(std::uint32_t index) {
  return mill::stream(up_to(2)).of_rank({.index = index, .world_size = 8});
}

template <class T>
std::string said_by(const mill::stream<T>& s) {
  std::string all;
  for (const mill::stage_bounds& b : s.bounds()) all += b.name + (" " + std::to_string(b.items)) + "; ";
  return all;
}
std::string lines(const mill::stage_recorder& recorder) {
  std::string all;
  recorder.for_each([&](const mill::stage_record& r) { all += r.name + (" " + std::to_string(r.items)) + "; "; });
  return all;
}

/// What was destroyed, in that order.
class grave {
 public:
  class stone {
   public:
    stone(grave& g, char name) noexcept : grave_(&g), name_(name) {}
    stone(stone&& other) noexcept : grave_(std::exchange(other.grave_, nullptr)), name_(other.name_) {}
    ~stone() {
      if (grave_ != nullptr) grave_->names += name_;
    }

   private:
    grave* grave_;
    char name_;
  };
  std::shared_ptr<void> object(char name) { return std::make_shared<stone>(*this, name); }
  std::string names;
};
mill::async_generator<int> with_stone(grave::stone, int n) {
  for (int i = 0; i < n; ++i) {
    int item = i;
    co_yield mill::give(item);
  }
}

TEST_CASE("a generator of your own is a stream where one is expected") {
  const auto promised = []() -> mill::stream<int> { return up_to(3); };
  CHECK(run(promised()) == ints{0, 1, 2});
  CHECK(run(up_to(3) | mill::take(2)) == ints{0, 1});
  CHECK(run(up_to(3) | twice) == ints{0, 2, 4});
  CHECK(run(mill::zip(up_to(2), mill::iota(2))) == std::vector<std::tuple<int, int>>{{0, 0}, {1, 1}});
  CHECK(run(mill::concat(up_to(1), mill::iota(2))) == ints{0, 0, 1});
  CHECK(run(mill::merge(up_to(2))) == ints{0, 1});
  std::vector<mill::async_generator<int>> sources;
  sources.push_back(up_to(2));
  CHECK(run(mill::mix(std::move(sources), {1})) == ints{0, 1});
}

TEST_CASE("a stream becomes a generator only where that is written") {
  static_assert(!std::is_convertible_v<mill::stream<int>, mill::async_generator<int>>);
  static_assert(!std::is_constructible_v<mill::async_generator<int>, mill::stream<int>>);
  static_assert(!std::is_copy_constructible_v<mill::stream<int>>);
  mill::testing::virtual_loop loop;
  mill::stage_recorder recorder;
  mill::stream<int> given = mill::iota(3) | held;
  mill::async_generator<int> bare = std::move(given).generator();
  CHECK(given.bounds().empty());
  CHECK_FALSE(given);
  mill::stream<int> again = std::move(bare);
  CHECK(again.bounds().empty());
  mill::block_on({loop, recorder.find_or_add("sink", nullptr)}, mill::collect(std::move(again)));
  CHECK(lines(recorder) == "sink 0; held 3; iota 3; ");  // names are not lost
}

TEST_CASE("declarations before a stage are kept after it, for any stage") {
  const auto source = [] { return mill::iota(4) | mill::buffer({.items = 9}); };
  CHECK(said_by(source()) == "buffer 9; ");
  CHECK(said_by(source() | mill::take(2)) == "buffer 9; ");
  CHECK(said_by(source() | twice) == "buffer 9; ");
  CHECK(said_by(source() | held) == "buffer 9; held 7; ");
  CHECK(said_by(source() | in_parts | twice) == "buffer 9; held 7; buffer 2; ");
  CHECK(said_by(in_parts(source())) == "buffer 9; held 7; buffer 2; ");
  CHECK(said_by(source() | (twice | mill::map([](int x) { return x; }) | held)) == "buffer 9; held 7; ");
  CHECK(said_by(source() | mill::named("mine", held)) == "buffer 9; mine 7; ");
  auto captures = [n = std::make_unique<int>(3)](mill::async_generator<int> in) {
    return mill::stream(twice(std::move(in))).bounded(std::size_t(*n), 1);
  };
  CHECK(said_by(source() | std::move(captures)) == "buffer 9; stage 3; ");
  CHECK(run(source() | in_parts) == ints{0, 2, 4, 6});
}

TEST_CASE("the rank that was declared first holds for the pipeline") {
  CHECK_FALSE(mill::iota(3).declared_rank());
  const auto third = [](mill::async_generator<int> in) {
    return mill::stream(twice(std::move(in))).of_rank({.index = 3, .world_size = 8});
  };
  CHECK((mill::iota(3) | third | twice | mill::take(1)).declared_rank()->index == 3u);
  CHECK((of_rank(1) | third).declared_rank()->index == 1u);
  CHECK(of_rank(1).of_rank({.index = 2}).declared_rank()->index == 1u);
  CHECK(mill::zip(mill::iota(2), of_rank(5), of_rank(6)).declared_rank()->index == 5u);
  CHECK(mill::concat(up_to(2), of_rank(5)).declared_rank()->index == 5u);
  CHECK(of_rank(5).bounds().empty());
}

TEST_CASE("stages of several sources join what these say, in their order") {
  const auto some = [](std::size_t n) { return mill::iota(2) | mill::buffer({.items = n}); };
  CHECK(said_by(mill::zip(some(1), up_to(2), some(3))) == "buffer 1; buffer 3; ");
  CHECK(said_by(mill::zip_equal(some(1), some(2)) | mill::take(1)) == "buffer 1; buffer 2; ");
  CHECK(said_by(mill::concat(some(1), some(2))) == "buffer 1; buffer 2; ");
  CHECK(said_by(mill::merge(some(1), up_to(1))) == "buffer 1; merge 2; ");
  std::vector<mill::stream<int>> sources;
  sources.push_back(some(4));
  sources.push_back(some(5) | held);
  CHECK(said_by(mill::mix(std::move(sources), {1, 1})) == "buffer 4; buffer 5; held 7; ");
}

TEST_CASE("streams made for items are held against what was stated for them") {
  const auto open = [](int n) { return mill::iota(n) | mill::buffer({.items = 2, .bytes = 100}); };
  CHECK(run(mill::iota(3) | mill::flat_map(open, {.inner_bytes = 100})) == ints{0, 0, 1});
  CHECK_THROWS_AS(run(mill::iota(3) | mill::flat_map(open, {.inner_bytes = 7})), mill::configuration_error);
  CHECK(run(mill::iota(3) | mill::map(open) | mill::interleave({.inner_bytes = 100})) == ints{0, 0, 1});
  CHECK_THROWS_AS(run(mill::iota(3) | mill::map(open) | mill::interleave({.inner_bytes = 7})),
                  mill::configuration_error);
  CHECK(run(mill::iota(3) | mill::flat_map(up_to, {.inner_bytes = 7})) == ints{0, 0, 1});
}

TEST_CASE("what a stream keeps lives as long as its coroutine, also as a generator") {
  grave g;
  mill::testing::virtual_loop loop;
  {
    mill::stream<int> s(with_stone(grave::stone(g, 'c'), 3));
    s = std::move(s).keep(g.object('1')).keep(g.object('2')).keep(g.object('3'));
    mill::async_generator<int> bare = std::move(s).named("kept").generator();
    mill::stream<int> again = std::move(bare);
    CHECK(flow_tests::run_some(loop, again, 2) == ints{0, 1});
    CHECK(g.names.empty());
  }
  CHECK(g.names == "c123");
}

TEST_CASE("the pipe keeps a stage with captures, also where its result is made a generator") {
  grave g;
  mill::testing::virtual_loop loop;
  {
    auto stage = [mine = grave::stone(g, 's'), n = 3](mill::async_generator<int> in) -> mill::async_generator<int> {
      while (std::optional<int> x = co_await in.next()) co_yield *x * n;
    };
    mill::async_generator<int> bare = (mill::iota(4) | std::move(stage)).generator();
    mill::stream<int> piped = std::move(bare) | mill::take(3);
    CHECK(flow_tests::run_some(loop, piped, 2) == ints{0, 3});
    CHECK(g.names.empty());
  }
  CHECK(g.names == "s");
}

TEST_CASE("dropping a stream drops the pipeline") {
  mill::testing::virtual_loop loop;
  mill::testing::scripted_source<int> script;
  script.item(1).never();
  auto piped = std::optional(script.open() | twice | mill::buffer());
  CHECK(flow_tests::run_some(loop, *piped, 1) == ints{2});
  CHECK(script.open_now());
  piped.reset();
  CHECK_FALSE(script.open_now());
  auto other = script.open() | twice;
  other = mill::stream<int>();
  CHECK_FALSE(script.open_now());
}

TEST_CASE("a stream that was moved from says nothing and is refused with a sentence") {
  mill::stream<int> from = mill::iota(3) | held;
  mill::stream<int> to = std::move(from);
  CHECK(said_by(to) == "held 7; ");
  CHECK_FALSE(from);
  CHECK(said_by(from).empty());
  const auto refused = [](auto use) {
    CHECK_THROWS_AS(use(), mill::usage_error);
  };
  refused([&] { (void)from.next(); });
  refused([&] { (void)from.next_in_place(); });
  refused([] { (void)mill::stream<int>().named("x"); });
  refused([] { (void)mill::stream<int>().named("x", "y"); });
  refused([] { (void)mill::stream<int>().bounded(1, 1); });
  refused([] { (void)mill::stream<int>().bounded("x", 1, 1); });
  refused([] { (void)mill::stream<int>().of_rank({}); });
  refused([] { (void)mill::stream<int>().keep(nullptr); });
  refused([] { (void)(mill::stream<int>() | mill::take(1)); });
  CHECK_FALSE(mill::stream<int>().generator());
}

}  // namespace
