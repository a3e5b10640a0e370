// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The lines of the stage table: one for each place in the pipeline, sources first, and what counts as items and bytes.

#include <millrace/loader/run.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/flow/batch.hpp>
#include <millrace/flow/combine.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/shards/fetch.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/zero_storage.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using lines = std::vector<std::string>;

namespace {

int same(int i) { return i; }

async_generator<int> numbers(int n) {
  for (int i = 0; i < n; ++i) {
    int value = i;
    co_yield give(value);
  }
}
async_generator<int> twice(async_generator<int> in) {
  while (int* i = co_await in.next_in_place()) {
    int first = *i;
    co_yield give(first);
    int second = *i;
    co_yield give(second);
  }
}

template <class Pipeline>
run_stats after_all(Pipeline pipeline) {
  auto r = run(std::move(pipeline));
  while (r.next()) continue;
  return r.stats();
}
/// Name and items of every line.
template <class Pipeline>
lines lines_of(Pipeline pipeline) {
  lines all;
  for (const stage_stats& s : after_all(std::move(pipeline)).stages) {
    all.push_back(s.name + " " + std::to_string(s.items));
  }
  return all;
}

/// Two objects of 1 MiB, read in 32 parts; of each part two strings, as large as four parts together: as pixels are.
stream<std::string> decoded() {
  std::vector<std::string> names{"mem:0", "mem:1"};
  const std::shared_ptr<const storage> store = std::make_shared<test::zero_storage>();
  auto of_chunk = [](const chunk& c) { return std::vector<std::string>(2, std::string(2 * c.data.size(), 'p')); };
  return from_range(std::move(names)) | map([](const std::string& name) { return shard(name, MiB); }) |
         fetch(store, {.shards = 2, .window = MiB, .part = 64 * KiB}) | flat_map(of_chunk);
}

}  // namespace

TEST_CASE("stages of one name have a line each, sources first") {
  CHECK(lines_of(iota(8) | map(same) | map(same) | batch(2)) == lines{"iota 8", "map 8", "map #2 8", "batch 4"});
  CHECK(lines_of(zip(iota(8) | map(same), iota(9) | map(same))) ==
        lines{"iota 8", "map 8", "iota #2 8", "map #2 8", "zip 8"});
}

TEST_CASE("the pipelines that a stage opens one after the other, or at once, are one pipeline of the table") {
  const auto inner = [](int) { return iota(200) | map(same); };
  const lines expected{"iota 4", "map 4", "iota #2 800", "map #2 800"};
  lines in_turn = expected;
  in_turn.push_back("flat_map 800");
  CHECK(lines_of(iota(4) | map(same) | flat_map(inner)) == in_turn);

  lines at_once{"iota 4", "map 4", "map #2 4", "iota #2 800", "map #3 800", "interleave 800"};
  CHECK(lines_of(iota(4) | map(same) | map(inner) | interleave({.width = 4})) == at_once);
}

TEST_CASE("a great many sources of one name do not make a great many lines") {
  std::vector<stream<int>> sources;
  for (int i = 0; i < 100; ++i) sources.push_back(iota(3));
  const lines all = lines_of(merge(std::move(sources)));
  CHECK(all.size() < 25);
  CHECK(std::count(all.begin(), all.end(), "iota #17 252") == 1);  // the rest of them
}

TEST_CASE("stages of the user's without a name have a line each, under their number") {
  CHECK(lines_of(numbers(4) | twice | twice | map(same)) == lines{"stage 1 4", "stage 2 8", "stage 3 16", "map 16"});
  CHECK(lines_of(numbers(4)) == lines{"stage 1 4"});
  CHECK(lines_of(numbers(4) | named("double", twice)) == lines{"stage 1 4", "double 8"});
  CHECK(lines_of(merge(numbers(4), numbers(5))).size() == 4);  // with the list of sources
  // Part of a stage is what the stage makes for itself.
  const auto own = [](async_generator<int> in) { return twice(twice(std::move(in))); };
  CHECK(lines_of(numbers(4) | own) == lines{"stage 1 4", "stage 2 16"});
}

TEST_CASE("items are what the training thread took, samples are in its batches, bytes came from the store") {
  const run_stats s = after_all(decoded() | batch(16));
  CHECK(s.items == 4);
  CHECK(s.bytes == 2 * MiB);
  CHECK_THAT(s.table(), Contains("training thread: 4 batches, 64 samples ("));
  CHECK_THAT(s.rates(), Contains("4 batches, 64 samples ("));
  const run_stats single = after_all(decoded());
  CHECK(single.items == 64);
  CHECK(single.bytes == 2 * MiB);
  CHECK_THAT(single.table(), Contains("training thread: 64 items ("));
}

TEST_CASE("without a store the bytes are those of the first items that have a size") {
  const auto text = [](int) { return std::string(100, 't'); };
  const auto larger = [](const std::string& s) { return s + s; };
  CHECK(after_all(iota(10) | map(text) | map(larger)).bytes == 1000);
  CHECK(after_all(zip(iota(10) | map(text) | map(larger), iota(10) | map(text))).bytes == 2000);
  CHECK(after_all(iota(10)).bytes == 0);
}

TEST_CASE("the progress line counts what the training thread took") {
  test::captured_stderr captured(test::captured_stderr::into::pipe);
  {
    auto r = run(decoded() | batch(16), {.show = progress::on});
    while (r.next()) continue;
  }
  CHECK_THAT(captured.text(), Contains(" s: 4 batches, 64 samples (") && Contains("thread: 4 batches, 64 samples ("));
}
