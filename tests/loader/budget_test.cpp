// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/budget.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <millrace/device/collate.hpp>
#include <millrace/device/host_device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/run.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

/// What the check says; "" when it finds nothing.
std::string complaint(const std::vector<stage_bounds>& bounds, std::size_t budget) {
  try {
    check_budget(bounds, budget);
    return "";
  } catch (const configuration_error& e) {
    return e.what();
  }
}

/// Nothing in it that what() had to escape: it is one line for people.
bool is_plain_line(const std::string& text) {
  return text.find('\n') == std::string::npos && text.find('\\') == std::string::npos;
}

async_generator<std::string> words(int n) {
  for (int i = 0; i < n; ++i) {
    std::string word(1, static_cast<char>('a' + i));
    co_yield give(word);
  }
}
class numbered {
 public:
  explicit numbered(int i) : value(i) {}
  int value;
  friend void collate(const numbered& n, sample_writer& out) { out.write("value", n.value); }
};
async_generator<int> numbers(int n) {
  for (int i = 0; i < n; ++i) {
    int value = i;
    co_yield give(value);
  }
}

TEST_CASE("bounds that fit are no error, to the byte; no budget asks for nothing") {
  const std::vector<stage_bounds> bounds = {{"fetch", 4, 600}, {"buffer", 8, 400}, {"map", 0, 0}};
  CHECK(complaint(bounds, 1000) == "");
  CHECK(complaint(bounds, 999) != "");
  CHECK(complaint(bounds, 0) == "");
  CHECK(complaint({{"batch", 8, 0}}, 0) == "");
  CHECK(complaint({}, 1) == "");
}

TEST_CASE("a budget that is exceeded is told in one line with the bound of every stage") {
  const std::string text = complaint({{"fetch", 4, 3000}, {"shuffle", 16, 2000}, {"buffer", 8, 1000}}, 5999);
  INFO(text);
  CHECK(is_plain_line(text));
  CHECK_THAT(text, Contains("6.00 kB"));
  CHECK_THAT(text, Contains("fetch 3.00 kB"));
  CHECK_THAT(text, Contains("shuffle 2.00 kB"));
  CHECK_THAT(text, Contains("buffer 1.00 kB"));
}

TEST_CASE("a stage that works ahead and states no bytes is told in one line") {
  const std::string text = complaint({{"fetch", 4, 1000}, {"batch", 8, 0}}, 1 << 20);
  INFO(text);
  CHECK(is_plain_line(text));
  CHECK_THAT(text, Contains("stage batch states no bound in bytes"));
}

TEST_CASE("bounds whose sum is no number any more do not fit") {
  CHECK(complaint({{"fetch", 1, SIZE_MAX}, {"buffer", 1, 2}}, 1000) != "");
  CHECK(complaint({{"fetch", 1, SIZE_MAX / 2 + 1}, {"buffer", 1, SIZE_MAX / 2 + 1}}, 1000) != "");
  CHECK(complaint({{"fetch", 1, 500}, {"buffer", 1, SIZE_MAX - 100}, {"map", 1, 200}}, 1000) != "");
}

TEST_CASE("the table has a line for every stage and one for all of them") {
  const std::string table = budget_table({{"fetch", 4, 3000}, {"batch", 8, 0}, {"buffer", 2, 1000}});
  CHECK(table ==
        "stage                 items       bytes\n"
        "fetch                     4     3.00 kB\n"
        "batch                     8  not stated\n"
        "buffer                    2     1.00 kB\n"
        "together                        4.00 kB\n");
  const std::string most = budget_table({{"fetch", 1, SIZE_MAX}});
  const std::string more = budget_table({{"fetch", 1, SIZE_MAX}, {"buffer", 1, SIZE_MAX}});
  const std::string last = "together";
  CHECK(more.substr(more.find(last)) == most.substr(most.find(last)));
}

TEST_CASE("batches of strings run within a budget that is told what they take") {
  const auto pipeline = [] { return words(4) | batch(2, {.bytes = 1000}); };
  CHECK_THROWS_AS(run(pipeline(), {.prefetch_bytes = 1000, .budget = 1999}), configuration_error);
  auto r = run(pipeline(), {.prefetch_bytes = 1000, .budget = 2000});
  int batches = 0;
  for (auto& b : r) batches += b.size() == 2 ? 1 : 0;
  CHECK(batches == 2);
  // Untold, there is nothing to check the budget against.
  CHECK_THROWS_AS(run(words(4) | batch(2), {.prefetch_bytes = 1000, .budget = 2000}), configuration_error);
  CHECK_THROWS_WITH(run(pipeline(), {.budget = 2000}), Contains("stage run states no bound in bytes"));
}

TEST_CASE("batches of items of a fixed size need not be told") {
  const auto pipeline = [] { return numbers(4) | batch(2); };
  constexpr std::size_t bytes = 2 * sizeof(int);
  CHECK_THROWS_AS(run(pipeline(), {.prefetch_bytes = 100, .budget = bytes + 99}), configuration_error);
  auto r = run(pipeline(), {.prefetch_bytes = 100, .budget = bytes + 100});
  CHECK(r.next()->size() == 2);
  // Nor need the items that wait for the training thread.
  auto ints = run(numbers(4), {.prefetch = 3, .budget = 3 * sizeof(int)});
  CHECK(ints.next() == 0);
  CHECK_THROWS_AS(run(numbers(4), {.prefetch = 3, .budget = 3 * sizeof(int) - 1}), configuration_error);
}

TEST_CASE("what is made ahead of the training thread is bounded in bytes") {
  const auto most_ahead = [](std::size_t prefetch_bytes) {
    std::atomic<int> made{0};
    const auto source = [](std::atomic<int>& count) -> async_generator<std::string> {
      for (int i = 0; i < 6; ++i) {
        std::string item(1000, 'x');
        ++count;
        co_yield give(item);
      }
    };
    auto r =
        run(source(made) | map([](std::string s) { return s; }), {.prefetch = 5, .prefetch_bytes = prefetch_bytes});
    int most = 0;
    for (int taken = 1; r.next(); ++taken) most = std::max(most, made.load() - taken);
    return most;
  };
  // Pulled and not yet handed to the training thread; the one that waits for room has been pulled too.
  CHECK(most_ahead(2000) <= 3);
  CHECK(most_ahead(1) <= 2);
}

TEST_CASE("pipelines that are made while another one runs count with what was stated for them") {
  const auto inner = [](int n) { return words(n) | buffer({.items = 4, .bytes = 500}); };
  const auto nested = [&](std::size_t stated) { return numbers(3) | flat_map(inner, {.inner_bytes = stated}); };
  const run_options tight{.prefetch_bytes = 100, .budget = 1000};
  CHECK_THROWS_WITH(run(nested(0), tight), Contains("flat_map, open pipeline states no bound in bytes"));
  CHECK_THROWS_AS(run(nested(901), tight), configuration_error);
  auto fits = run(nested(900), tight);
  std::string all;
  for (const std::string& w : fits) all += w;
  CHECK(all == "aab");
  // What does not keep to it is an error, with or without a budget.
  auto lies = run(nested(499));
  CHECK_THROWS_WITH(lies.next() && lies.next(), Contains("more than .inner_bytes, which is 499") && Contains("buffer"));
  const auto unknown = [](int n) { return words(n) | batch(2); };
  auto silent = run(numbers(3) | flat_map(unknown, {.inner_bytes = 499}));
  CHECK_THROWS_WITH(silent.next(), Contains("states no bound in bytes for its stage batch"));

  const auto wide = [&](std::size_t stated) {
    return numbers(3) | map(inner) | interleave({.width = 2, .ahead = 1, .bytes = 100, .inner_bytes = stated});
  };
  CHECK_THROWS_WITH(run(wide(0), tight), Contains("interleave, open sources states no bound in bytes"));
  CHECK_THROWS_AS(run(wide(401), tight), configuration_error);  // 100 + 100 + 2 * 401
  auto lying = run(wide(400), tight);
  CHECK_THROWS_WITH(lying.next(), Contains("more than .inner_bytes, which is 400"));
  std::size_t count = 0;
  for (const std::string& w : run(wide(500))) count += w.size();
  CHECK(count == 3);
}

TEST_CASE("batches of a device are in the bound of their slots, not in that of the training thread") {
  const auto pipeline = [] {
    return numbers(8) | map([](int i) { return numbered(i); }) | batch(2, {.bytes = 1000}) |
           to_device(host_device(), {.slots = 3, .slot_bytes = 64 * KiB});
  };
  const std::size_t bytes = 1000 + 2 * 3 * 64 * KiB;  // of a slot, and of what it is copied from
  CHECK_THROWS_AS(run(pipeline(), {.budget = bytes - 1}), configuration_error);
  auto r = run(pipeline(), {.budget = bytes});
  int batches = 0;
  while (r.next()) ++batches;
  CHECK(batches == 4);
}

TEST_CASE("functions that return ranges open no pipelines") {
  const auto twice = [](int n) { return std::vector<int>{n, n}; };
  auto r = run(numbers(2) | flat_map(twice), {.prefetch = 1, .budget = sizeof(int)});
  int sum = 0;
  for (const int n : r) sum += n;
  CHECK(sum == 2);
}

}  // namespace
