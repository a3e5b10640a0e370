// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// One rank of a training on tars that expects to be killed at any moment: killed_rank.hpp says how it is called.

#include "tests/killed/killed_rank.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>

namespace mill = millrace;

namespace {

/// What a batch has to do with a sample: where it stood, which it is, its bytes, and its random numbers.
std::string line_of(const mill::sample& s) {
  std::uint32_t crc = 0;
  for (const mill::field& f : s.fields) crc = mill::crc32c(crc, f.data.data(), f.data.size());
  return std::to_string(s.mark.epoch) + " " + std::to_string(s.mark.position) + " " + s.key + " " +
         std::to_string(crc) + " " + std::to_string(s.random(1).next());
}

}  // namespace

int main(int count, char** arguments) {
  const auto train = [](const std::vector<std::string>& words) {
    const auto batches = [](auto samples) { return std::move(samples) | mill::batch(); };
    const auto learn = [](const std::vector<mill::sample>& batch, killed::model& trained) {
      for (const mill::sample& s : batch) {
        if (s.weight() != 0) trained.add(line_of(s), s.mark.epoch, s.from);
      }
    };
    return killed::train(words, nullptr, batches, learn);
  };
  return killed::main_of(count, arguments, train);
}
