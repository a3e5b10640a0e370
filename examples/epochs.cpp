// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Epochs as one stream, in an order that is the same for any number of ranks, and a training that resumes where it was
// stopped.
//
//   example_epochs 'data/*.tar' STATE [STOP]       stops after STOP batches; the next call resumes there
//   mpirun -n 2 example_epochs ...                 shares the samples; also where it was stopped on another number

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/rank_from_environment.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/train/dataset.hpp>

namespace mill = millrace;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// Replaces the file atomically: a training that is killed while it writes keeps the state before.
void write(const std::string& path, const std::string& text) {
  const std::string half = path + ".part";
  errno = 0;
  std::ofstream file(half, std::ios::binary);
  file << text;
  file.close();
  if (!file || std::rename(half.c_str(), path.c_str()) != 0) {
    throw mill::io_error::of(errno, "the state cannot be written", mill::where{path, std::nullopt, {}});
  }
}

void train(const std::string& pattern, const std::string& state, long stop) {
  const mill::rank mine = mill::rank_from_environment();
  const std::string index = state + ".index";  // what the shards hold: made by the first run
  mill::runtime rt;
  const mill::dataset data(mill::files(), pattern, {.index = index});
  auto run =
      rt.run(mill::epochs(data, {.seed = 7, .epochs = 3, .batch = 4, .rank = mine}, text_of(state)) | mill::batch());
  for (const std::vector<mill::sample>& batch : run) {
    std::string line = "epoch " + std::to_string(batch.front().mark.epoch) + ":";
    for (const mill::sample& s : batch) {
      if (s.weight() != 0) line += ' ' + s.key;  // the last batch of an epoch is filled up
    }
    std::puts(line.c_str());
    if (--stop == 0) break;
  }
  if (mine.index == 0) write(state, run.state());  // beside the model
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3 || count > 4) {
    std::fprintf(stderr, "usage: %s 'PATTERN' STATE [STOP]\n", arguments[0]);
    return 2;
  }
  try {
    train(arguments[1], arguments[2], count == 4 ? std::atol(arguments[3]) : 0);
  } catch (const mill::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
