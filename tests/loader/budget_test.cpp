// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/budget.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <millrace/flow/batch.hpp>
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
  CHECK_THROWS_AS(run(pipeline(), {.budget = 999}), configuration_error);
  auto r = run(pipeline(), {.budget = 1000});
  int batches = 0;
  for (auto& b : r) batches += b.size() == 2 ? 1 : 0;
  CHECK(batches == 2);
  // Untold, there is nothing to check the budget against.
  CHECK_THROWS_AS(run(words(4) | batch(2), {.budget = 1000}), configuration_error);
}

TEST_CASE("batches of items of a fixed size need not be told") {
  const auto pipeline = [] { return numbers(4) | batch(2); };
  CHECK_THROWS_AS(run(pipeline(), {.budget = 2 * sizeof(int) - 1}), configuration_error);
  auto r = run(pipeline(), {.budget = 2 * sizeof(int)});
  CHECK(r.next()->size() == 2);
}

}  // namespace
