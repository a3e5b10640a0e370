// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Ranks that read disjoint shards: every process reads the samples of its own shards.
//
//   mpirun -n 2 example_ranks 'data/train-{00..07}.tar'      torchrun, srun and the others work the same way

#include <cstdio>
#include <set>
#include <string>

#include <millrace/flow/pipe.hpp>
#include <millrace/loader/rank_from_environment.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar.hpp>

namespace mill = millrace;

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s 'SHARDS-{0..9}.tar'\n", arguments[0]);
    return 2;
  }
  try {
    const mill::rank r = mill::rank_from_environment();  // one log line says who this is
    auto mine = mill::shards(arguments[1])               // the same list in every process,
                | mill::shuffle_shards({.seed = 7})      // in the same order,
                | mill::split_by_rank(r)                 // of which each takes its share
                | mill::fetch(mill::files()) | mill::untar() | mill::group_samples();
    std::set<std::string> shards;
    std::size_t samples = 0;
    for (const mill::sample& s : mill::run(std::move(mine))) {
      shards.insert(s.from.url());
      ++samples;
    }
    std::string line = "rank " + std::to_string(r.index) + " read " + std::to_string(samples) + " samples from";
    for (const std::string& url : shards) line += ' ' + url;
    std::puts(line.c_str());
  } catch (const mill::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
