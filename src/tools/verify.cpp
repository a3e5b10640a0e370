// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// millrace-verify: whether the epochs of a training had every sample once. docs/guide/tools.md describes it.

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/order/epoch_fingerprint.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/text/text.hpp>

#include "src/tools/command_line.hpp"
#include "src/tools/store.hpp"

namespace mill = millrace;

namespace {

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
      throw mill::decode_error("the line is not an epoch and a fingerprint", mill::where{name, at, {}});
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
  int status = tools::fine;
  if (epochs.empty()) {
    std::puts("the files have no fingerprints");
    status = tools::bad_data;
  }
  for (const auto& [epoch, delivered] : epochs) {
    const std::string problem = mill::verify_epoch(*set.counts(), epoch, delivered);
    if (problem.empty()) {
      std::printf("epoch %llu: each of %llu samples once\n", static_cast<unsigned long long>(epoch),
                  static_cast<unsigned long long>(set.samples()));
    } else {
      std::printf("epoch %llu: WRONG: %s\n", static_cast<unsigned long long>(epoch), problem.c_str());
      status = tools::bad_data;
    }
  }
  return status;
}

}  // namespace

int main(int count, char** texts) {
  tools::command_line given("millrace-verify",
                            "Says whether each epoch of a training had every sample once, from the fingerprints that\n"
                            "its ranks kept.");
  std::string index;
  std::vector<std::string> files;
  given.add_option("INDEX", index, "The index of the shards: s3://bucket/key or a file")->required()
      ->type_name("")
      ->check(tools::not_empty);
  given.add_option("FINGERPRINTS", files, "A file of each rank: lines of an epoch's number and its fingerprint")
      ->required()
      ->type_name("")
      ->check(tools::not_empty);
  return given.run(count, texts, [&] { return verify(index, files); });
}
