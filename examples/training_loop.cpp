// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A plain training loop that pulls batches from the loop thread: a range for `for`, or next() where the step decides
// when to ask. Nothing here is a coroutine.

#include <cstdio>
#include <vector>

#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>

namespace mill = millrace;

int main() {
  auto pipeline = [](std::uint64_t epoch) {
    return mill::iota(10000)                                                  //
           | mill::shuffle({.window = 10000, .seed = 7, .epoch = epoch})      //
           | mill::map([](int i) { return static_cast<double>(i) / 10000; })  //
           | mill::batch(100);
  };
  double mean = 0;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    for (const std::vector<double>& batch : mill::run(pipeline(epoch), {.prefetch = 2})) {
      for (double x : batch) mean += 0.001 * (x - mean);  // "train"
    }
    std::printf("epoch %d: %.3f\n", static_cast<int>(epoch), mean);
  }
  // By hand, and left early: dropping the run ends it.
  auto run = mill::run(pipeline(0));
  std::size_t seen = 0;
  while (std::optional<std::vector<double>> batch = run.next()) {
    seen += batch->size();
    if (seen >= 500) break;
  }
  std::printf("stopped after %zu items\n", seen);
  return mean > 0.3 && mean < 0.7 && seen == 500 ? 0 : 1;
}
