// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/flat_map.hpp>

#include <memory>
#include <string>

#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/testing/census.hpp>
#include <millrace/testing/scripted_source.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace flow_tests;
using namespace std::chrono_literals;
using mill::testing::scripted_source;
using mill::testing::virtual_loop;

namespace {

struct sample {
  explicit sample(int n) : fields(static_cast<std::size_t>(n), n), label(n) {}
  ints fields;
  int label;
};

mill::async_generator<int> count_slowly(const int& n) {
  for (int i = 0; i < n; ++i) {
    co_await mill::sleep_for(1ms);
    co_yield n * 10 + i;
  }
}

TEST_CASE("flat_map yields generators one after the other; they may refer to the item") {
  virtual_loop loop;
  auto source = mill::iota(4) | mill::flat_map(count_slowly);
  CHECK(mill::block_on(loop, mill::collect(std::move(source))) == ints{10, 20, 21, 30, 31, 32});
  CHECK(loop.elapsed() == 6ms);
}

TEST_CASE("the item lives until everything made of it has been delivered, and no longer") {
  virtual_loop loop;
  mill::testing::lifetime life;
  auto count_to = [](const mill::testing::tracked& t) -> mill::async_generator<std::int64_t> {
    for (std::int64_t i = 0; i < t.value(); ++i) co_yield i;
  };
  auto source =
      mill::iota(4) | mill::map([&](int x) { return mill::testing::tracked(life, x); }) | mill::flat_map(count_to);
  auto body = [&]() -> mill::task<void> {
    while (std::optional<std::int64_t> x = co_await source.next())
      CHECK(life.live() == 2);  // the item, and what map moved it from
  };
  mill::block_on(loop, body());
  CHECK(life.live() == 0);
}

TEST_CASE("flat_map moves from containers by value and copies from references") {
  auto pointers = [](int n) {
    std::vector<std::unique_ptr<int>> all;
    for (int i = 0; i < n; ++i) all.push_back(std::make_unique<int>(i));
    return all;
  };
  CHECK(run(mill::iota(4) | mill::flat_map(pointers)).size() == 6);
  auto samples = [] { return mill::iota(3) | mill::map([](int n) { return sample(n); }); };
  CHECK(run(samples() | mill::flat_map(&sample::fields)) == ints{1, 2, 2});
  const ints fixed{7, 8};
  CHECK(run(mill::iota(2) | mill::flat_map([&](int) -> const ints& { return fixed; })) == ints{7, 8, 7, 8});
  CHECK(fixed == ints{7, 8});
}

TEST_CASE("flat_map keeps a lambda with captures that is a coroutine") {
  auto make = [] {
    std::string text(60, 'x');
    return mill::iota(3) | mill::flat_map([text](int n) -> mill::async_generator<std::string> {
             for (int i = 0; i < n; ++i) co_yield text + std::to_string(i);
           });
  };
  CHECK(run(make()).back() == std::string(60, 'x') + "1");
}

TEST_CASE("errors of an inner generator and of the outer one come in their turn") {
  virtual_loop loop;
  auto inner = [](int n) -> mill::async_generator<int> {
    co_yield 10 * n;
    if (n == 1) throw std::runtime_error("inner");
    co_yield 10 * n + 1;
  };
  auto seen = run_to_error(loop, mill::iota(3) | mill::flat_map(inner));
  CHECK(seen.items == ints{0, 1, 10});
  CHECK(seen.error == "inner");
  scripted_source<int> script;
  script.item(0).fail(std::make_exception_ptr(std::runtime_error("outer")));
  seen = run_to_error(loop, script.open() | mill::flat_map(inner));
  CHECK(seen.items == ints{0, 1});
  CHECK(seen.error == "outer");
}

TEST_CASE("batch fills vectors and keeps or drops the rest") {
  using batches = std::vector<ints>;
  CHECK(run(mill::iota(5) | mill::batch(2)) == batches{{0, 1}, {2, 3}, {4}});
  CHECK(run(mill::iota(5) | mill::batch(2, {.last = mill::last_batch::drop})) == batches{{0, 1}, {2, 3}});
  CHECK(run(mill::iota(4) | mill::batch(2)) == batches{{0, 1}, {2, 3}});
  CHECK(run(mill::iota(0) | mill::batch(2)).empty());
  CHECK(run(mill::iota(3) | mill::batch(100)) == batches{{0, 1, 2}});
  CHECK_THROWS_AS(mill::batch(0), mill::configuration_error);
  const auto source = mill::iota(5) | mill::batch(2);
  CHECK(source.bounds().back().items == 2);
}

TEST_CASE("an error drops the batch that is not full") {
  virtual_loop loop;
  scripted_source<int> script;
  script.item(0).item(1).item(2).fail(std::make_exception_ptr(std::runtime_error("source")));
  const auto seen = run_to_error(loop, script.open() | mill::batch(2));
  CHECK(seen.items == std::vector<ints>{{0, 1}});
  CHECK(seen.error == "source");
}

TEST_CASE("batches know their bytes when their items do") {
  CHECK(mill::detail::item_bytes(std::vector<std::string>{"ab", "cde"}) == 5);
  CHECK(mill::detail::item_bytes(std::vector<float>(3)) == 12);
  CHECK(mill::detail::item_bytes(std::vector<std::vector<float>>(2, std::vector<float>(3))) == 24);
  CHECK(mill::detail::item_bytes(std::vector<mill::bytes>{mill::bytes::copy("abc"), mill::bytes()}) == 3);
  CHECK(mill::detail::item_bytes(std::vector<std::unique_ptr<int>>(3)) == 0);
  CHECK(mill::detail::item_bytes(7) == 0);
}

}  // namespace
