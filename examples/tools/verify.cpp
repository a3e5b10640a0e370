// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Tells whether the epochs of a training had every sample once, from the fingerprints that its ranks kept.
//
//   millrace-verify s3://bucket/prefix/millrace.index rank-*.txt
//
// A file of a rank has a line for each epoch that it took part in, or for each part of one: the epoch's number and the
// text of its epoch_fingerprint.

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/feed/epoch_fingerprint.hpp>
#include <millrace/feed/index_set.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/text/numbers.hpp>

#include "examples/tools/store.hpp"

namespace mill = millrace;

namespace {

const char* const usage = "millrace-verify INDEX FINGERPRINTS...";

void add_file(std::map<std::uint64_t, mill::epoch_fingerprint>& epochs, const std::string& name) {
  const std::optional<std::string> text = tools::store(name).read(name);
  if (!text) throw mill::configuration_error("there is no such file", mill::where{name, std::nullopt, {}});
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const std::uint64_t at = text->size() - rest.size();
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.empty()) continue;
    std::string_view words = line;
    const std::optional<std::uint64_t> epoch = mill::text::take_decimal<std::uint64_t>(words);
    const bool blank = !words.empty() && words.front() == ' ';
    const std::optional<mill::epoch_fingerprint> part =
        blank ? mill::epoch_fingerprint::parse(words.substr(1)) : std::nullopt;
    if (!epoch || !part) {
      throw mill::configuration_error("the line is not an epoch and a fingerprint", mill::where{name, at, {}});
    }
    epochs[*epoch] += *part;
  }
}

int verify(const std::string& index, const std::vector<std::string>& files) {
  const std::optional<std::string> text = tools::store(index).read(index);
  if (!text) throw mill::configuration_error("there is no index", mill::where{index, std::nullopt, {}});
  const mill::index_set set(mill::read_indexes(*text, index));
  std::map<std::uint64_t, mill::epoch_fingerprint> epochs;
  for (const std::string& file : files) add_file(epochs, file);
  int wrong = epochs.empty() ? 1 : 0;
  if (epochs.empty()) std::puts("the files have no fingerprints");
  for (const auto& [epoch, delivered] : epochs) {
    const std::string problem = mill::verify_epoch(*set.counts(), epoch, delivered);
    if (problem.empty()) {
      std::printf("epoch %llu: each of %llu samples once\n", static_cast<unsigned long long>(epoch),
                  static_cast<unsigned long long>(set.samples()));
    } else {
      std::printf("epoch %llu: WRONG: %s\n", static_cast<unsigned long long>(epoch), problem.c_str());
      wrong = 1;
    }
  }
  return wrong;
}

}  // namespace

int main(int count, char** texts) {
  tools::arguments given(count, texts, usage);
  std::vector<std::string> names = given.rest(2, 1000000);
  const std::string index = std::move(names.front());
  names.erase(names.begin());
  try {
    return verify(index, names);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
