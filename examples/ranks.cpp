// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Ranks that read disjoint shards: every process prints the shards that are its own.
//
//   mpirun -n 2 example_ranks 'train-{00..07}.tar'      torchrun, srun and the others work the same way

#include <cstdio>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/rank_from_environment.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/shuffle_shards.hpp>

namespace mill = millrace;

mill::task<void> print(mill::async_generator<mill::shard> mine, mill::rank r) {
  while (std::optional<mill::shard> s = co_await mine.next()) std::printf("rank %u: %s\n", r.index, s->url.c_str());
}

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s 'SHARDS-{0..9}.tar'\n", arguments[0]);
    return 2;
  }
  try {
    const mill::rank r = mill::rank_from_environment();
    auto mine = mill::shards(arguments[1]) | mill::shuffle_shards({.seed = 7}) | mill::split_by_rank(r);
    const auto loop = mill::make_event_loop();
    mill::block_on(*loop, print(std::move(mine), r));
  } catch (const mill::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
