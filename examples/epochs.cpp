// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Epochs as one stream, in an order that is the same for any number of ranks, and a training that goes on where it was
// stopped.
//
//   example_epochs SHARDS.tar... STATE [STOP]      stops behind STOP batches; the next call goes on behind them
//   mpirun -n 2 example_epochs ...                 shares the samples; also where it was stopped on another number

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/feed/epochs.hpp>
#include <millrace/feed/index_shard.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/rank_from_environment.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/file_storage.hpp>

namespace mill = millrace;

namespace {

/// What the shards hold. A training reads the file that millrace-index has written; these shards are small.
std::shared_ptr<const mill::index_set> index_of(const std::vector<std::string>& shards) {
  const auto loop = mill::make_event_loop();
  std::vector<mill::shard_index> all;
  for (const std::string& path : shards) {
    all.push_back(mill::block_on(*loop, mill::index_shard(mill::files(), mill::shard(path), path)));
  }
  return std::make_shared<const mill::index_set>(std::move(all));
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void train(const std::vector<std::string>& shards, const std::string& state, long stop) {
  const mill::rank mine = mill::rank_from_environment();
  const std::string saved = text_of(state);  // empty: from the beginning
  mill::runtime rt;
  auto run = rt.run(mill::epochs(index_of(shards), mill::files(),
                                 {.seed = 7, .epochs = 3, .batch = 4, .rank = mine, .resume = saved}) |
                    mill::batch(4));
  for (const std::vector<mill::sample>& batch : run) {
    std::string line = "epoch " + std::to_string(batch.front().mark.epoch) + ":";
    for (const mill::sample& s : batch) {
      if (s.weight() != 0) line += ' ' + s.key;  // the last batch of an epoch is filled up
    }
    std::puts(line.c_str());
    if (--stop == 0) break;
  }
  if (mine.index == 0) std::ofstream(state) << run.state();  // beside the model
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> words(arguments + 1, arguments + count);
  const bool stops = !words.empty() && words.back().find_first_not_of("0123456789") == std::string::npos;
  const long stop = stops ? std::atol(words.back().c_str()) : 0;
  if (stops) words.pop_back();
  if (words.size() < 2) {
    std::fprintf(stderr, "usage: %s SHARD.tar... STATE [STOP]\n", arguments[0]);
    return 2;
  }
  const std::string state = words.back();
  words.pop_back();
  try {
    train(words, state, stop);
  } catch (const mill::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
