// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/shards.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

rank process(std::uint32_t index, std::uint32_t world, const char* source) {
  rank r;
  r.index = index;
  r.world_size = world;
  r.source = source;
  return r;
}

struct outcome {
  std::vector<std::string> urls;
  std::string said;   // on standard error
  std::string error;  // of the configuration; "" when there was none
};

task<void> collect(stream<shard> in, std::vector<std::string>& urls) {
  while (auto s = co_await in.next()) urls.push_back(s->url);
}

outcome share_of(const rank& r, stream<shard> all) {
  outcome out;
  test::captured_stderr captured(test::captured_stderr::into::pipe);
  try {
    testing::virtual_loop loop;
    auto mine = std::move(all) | split_by_rank(r);
    block_on(loop, collect(std::move(mine), out.urls));
  } catch (const configuration_error& e) {
    out.error = e.what();
  }
  out.said = captured.text();
  return out;
}
stream<shard> named(const char* names) { return shards(names); }

}  // namespace

TEST_CASE("shards are put into another order for every seed and epoch, the same everywhere") {
  const auto order = [](std::uint64_t seed, std::uint64_t epoch) {
    testing::virtual_loop loop;
    std::vector<std::string> urls;
    block_on(loop, collect(named("{0..7}") | shuffle_shards({.seed = seed, .epoch = epoch}), urls));
    std::string text;
    for (const std::string& url : urls) text += url;
    return text;
  };
  CHECK(order(7, 0) == "62041573");
  CHECK(order(7, 1) == "61320745");
  CHECK(order(8, 0) == "27346501");
}

TEST_CASE("the line is said again when a number is another one, not for the next epoch") {
  test::captured_stderr captured(test::captured_stderr::into::pipe);
  for (const char* names : {"train-{0..8}.tar", "val-{0..2}.tar", "train-{0..8}.tar", "val-{0..2}.tar"}) {
    testing::virtual_loop loop;
    std::vector<std::string> urls;
    block_on(loop, collect(shards(names) | split_by_rank(process(1, 2, "torchrun")), urls));
  }
  CHECK(captured.text() ==
        "millrace: rank 1 of 2 (torchrun) reads 4 of 9 shards\n"
        "millrace: rank 1 of 2 (torchrun) reads 1 of 3 shards\n");
}

TEST_CASE("a process says once which rank it is, who said so, and how many shards it reads") {
  CHECK(share_of(process(1, 2, "torchrun"), named("{0..8}.tar")).said ==
        "millrace: rank 1 of 2 (torchrun) reads 4 of 9 shards\n");
  CHECK(share_of(process(0, 2, "Slurm"), named("{0..8}.tar")).said ==
        "millrace: rank 0 of 2 (Slurm) reads 5 of 9 shards\n");
}

TEST_CASE("a process that no launcher started says so, one that names itself the only one says nothing") {
  CHECK(share_of(process(0, 1, "no launcher"), named("{0..8}.tar")).said ==
        "millrace: rank 0 of 1 (no launcher) reads 9 of 9 shards\n");
  const outcome alone = share_of(rank(), named("{0..8}.tar"));
  CHECK(alone.said == "");
  CHECK(alone.urls.size() == 9);
}

TEST_CASE("the shares are disjoint and cover the list, in its order") {
  CHECK(share_of(process(1, 3, "torchrun"), named("{0..7}.tar")).urls ==
        std::vector<std::string>{"1.tar", "4.tar", "7.tar"});
  std::set<std::string> seen;
  std::size_t read = 0;
  for (std::uint32_t i = 0; i < 3; ++i) {
    for (const std::string& url : share_of(process(i, 3, "torchrun"), named("{0..7}.tar")).urls) {
      seen.insert(url);
      ++read;
    }
  }
  CHECK(seen.size() == 8);
  CHECK(read == 8);
}

TEST_CASE("a rank that gets no shard is an error with the numbers, not an empty epoch") {
  const outcome none = share_of(process(5, 8, "torchrun"), named("{0..2}.tar"));
  CHECK(none.error == "rank 5 of 8 gets no shard: there are only 3");
  CHECK(none.said == "millrace: rank 5 of 8 (torchrun) reads 0 of 3 shards\n");
  CHECK(none.urls.empty());
  const outcome last = share_of(process(2, 8, "torchrun"), named("{0..2}.tar"));
  CHECK(last.error == "");
  CHECK(last.urls == std::vector<std::string>{"2.tar"});
}

TEST_CASE("a rank that does not exist is refused before anything runs") {
  CHECK_THROWS_AS(split_by_rank(process(2, 2, "torchrun")), configuration_error);
  CHECK_THROWS_AS(split_by_rank(process(0, 0, "torchrun")), configuration_error);
}
