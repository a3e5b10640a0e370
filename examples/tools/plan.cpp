// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Says what an epoch will cost and give before a sample is read: batches, requests, bytes, memory, and how well it is
// shuffled.
//
//   millrace-plan s3://bucket/prefix/ --world 64 --batch 32       by its index, or by its list where there is none

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/feed/epoch_plan.hpp>
#include <millrace/feed/epochs_options.hpp>
#include <millrace/feed/index_set.hpp>
#include <millrace/s3/client.hpp>

#include "examples/tools/store.hpp"

namespace mill = millrace;

namespace {

const char* const usage =
    "millrace-plan PREFIX|FOLDER|INDEX [--world RANKS] [--batch SAMPLES] [--tracks T] [--slice SAMPLES]\n"
    "  [--take-batches N] [--memory-mb MIB_A_RANK]\n"
    "  [--seed S] [--epoch E] [--price-1000 PER_1000_REQUESTS] [--price-gb PER_GB] [--latency-ms MS] [--mb-s "
    "MB_A_SECOND]";

bool is_place(const std::string& name) {
  return name.back() == '/' || (!tools::store::is_s3(name) && std::filesystem::is_directory(name));
}

}  // namespace

int main(int count, char** texts) {
  tools::arguments given(count, texts, usage);
  mill::plan_options options;
  options.world = given.number("--world", 1);
  options.batch = given.number("--batch", 256);
  options.seed = given.number("--seed", 0);
  options.epoch = given.number("--epoch", 0);
  options.order.tracks = given.number("--tracks", options.order.tracks);
  options.order.slice = given.number("--slice", 0);
  options.take_batches = given.number("--take-batches", 0);
  options.memory = given.number("--memory-mb", mill::epochs_options().bytes / mill::MiB) * mill::MiB;
  options.price_of_1000_requests = given.decimal("--price-1000");
  options.price_of_gigabyte = given.decimal("--price-gb");
  options.request_seconds = given.decimal("--latency-ms") / 1000;
  options.bytes_per_second = given.decimal("--mb-s") * 1e6;
  const std::string name = given.rest(1, 1)[0];
  try {
    const tools::store store(name);
    const std::string index = is_place(name) ? tools::index_of(name) : name;
    const std::optional<std::string> text = store.read(index);
    if (text) {
      const mill::index_set set(mill::read_indexes(*text, index));
      if (options.order.slice == 0) options.order.slice = set.slice();
      std::printf("tracks %llu, slices of %llu samples\n%s", static_cast<unsigned long long>(options.order.tracks),
                  static_cast<unsigned long long>(options.order.slice),
                  mill::epoch_plan::of(set, options).text().c_str());
    } else if (is_place(name)) {
      const std::vector<mill::shard> shards = store.list(name);
      if (shards.empty()) throw mill::configuration_error("there are no .tar objects under " + name);
      std::fputs(mill::epoch_plan::of(shards, options).text().c_str(), stdout);
    } else {
      throw mill::configuration_error("there is no index", mill::where{index, std::nullopt, {}});
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
