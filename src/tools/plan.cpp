// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// millrace-plan: what an epoch will cost, before a sample is read. docs/guide/tools.md describes it.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/cache/cache_folder.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/train/detail/training_plan.hpp>
#include <millrace/train/epoch_plan.hpp>
#include <millrace/train/epochs_options.hpp>

#include "src/tools/command_line.hpp"
#include "src/tools/store.hpp"

namespace mill = millrace;

namespace {

bool is_place(const std::string& name) {
  return name.back() == '/' || (!tools::store::is_s3(name) && std::filesystem::is_directory(name));
}

/// What the index of a disk cache says; nothing is read from it.
class cached_bytes final : public mill::forwarding_storage {
 public:
  cached_bytes(const std::string& directory, std::shared_ptr<const mill::storage> store)
      : forwarding_storage(std::move(store)), index_(mill::detail::cache_folder::open_index(directory)) {}
  std::uint64_t held_on_disk(const mill::shard& object, std::uint64_t offset, std::uint64_t length) const override {
    const std::string name = mill::detail::cached_name(host(object.url), object.url);
    return index_->listed_bytes(name, offset, offset + length);
  }

 private:
  std::shared_ptr<const mill::detail::disk_slots> index_;
};

int plan(const std::string& name, mill::plan_options& options, const std::string& cache) {
  const tools::store store(name);
  std::optional<cached_bytes> cached;
  if (!cache.empty()) cached.emplace(cache, store.storage());
  const std::string index = is_place(name) ? tools::index_of(name) : name;
  if (const std::optional<std::string> text = store.read(index)) {
    const mill::index_set set(mill::read_indexes(*text, index));
    if (options.order.slice == 0) options.order.slice = mill::default_slice(set, options.world);
    if (options.order.tracks == 0) options.order.tracks = mill::default_tracks(set, options.order.slice, options.world);
    if (options.memory == 0) options.memory = mill::default_bytes(set, options.order, options.world);
    if (cached) {
      const std::string prefix = is_place(name) ? name : name.substr(0, name.rfind('/') + 1);
      const std::string folder = prefix + (prefix.empty() || prefix.back() == '/' ? "" : "/");
      const mill::detail::samples_on_disk held = mill::detail::look_on_disk(*cached, set, folder, {});
      options.held_bytes = held.bytes;
      options.held_of = held.of;
    }
    std::printf("tracks %llu, slices of %llu samples\n%s", static_cast<unsigned long long>(options.order.tracks),
                static_cast<unsigned long long>(options.order.slice),
                mill::epoch_plan::of(set, options).text().c_str());
    return tools::fine;
  }
  if (!is_place(name)) throw mill::configuration_error("there is no index", mill::where{index, std::nullopt, {}});
  const std::vector<mill::shard> shards = store.list(name);
  if (shards.empty()) throw mill::configuration_error("there are no .tar objects under " + name);
  for (const mill::shard& s : shards) {
    if (!cached || !s.size) continue;
    options.held_bytes += cached->held_on_disk(s, 0, *s.size);
    options.held_of += *s.size;
  }
  std::fputs(mill::epoch_plan::of(shards, options).text().c_str(), stdout);
  return tools::fine;
}

}  // namespace

int main(int count, char** texts) {
  tools::command_line given("millrace-plan",
                            "Says what an epoch will cost and give before a sample is read: batches, requests, bytes,\n"
                            "memory, and how well it is shuffled.");
  std::string name, folder;
  mill::plan_options o;
  o.batch = 256;
  o.order.slice = 0;
  o.order.tracks = 0;
  std::uint64_t memory = 0, cache = 0;
  double latency = 0, rate = 0;
  given.add_option("PLACE", name, "s3://bucket/prefix/, a folder, or an index")
      ->required()
      ->type_name("")
      ->check(tools::not_empty);
  const auto positive = [&](const char* option, std::uint64_t& value, const char* unit, const char* what) {
    given.add_option(option, value, what)->type_name(unit)->check(tools::positive)->capture_default_str();
  };
  const auto number = [&](const char* option, std::uint64_t& value, const char* unit, const char* what) {
    given.add_option(option, value, what)->type_name(unit)->check(tools::number)->capture_default_str();
  };
  const auto decimal = [&](const char* option, double& value, const char* unit, const char* what) {
    given.add_option(option, value, what)->type_name(unit)->check(tools::decimal);
  };
  positive("--world", o.world, "RANKS", "Ranks of the training");
  positive("--batch", o.batch, "SAMPLES", "Samples in a batch of one rank");
  number("--tracks", o.order.tracks, "T", "Tracks of the order: more of them shuffle better; 0: what epochs() takes");
  number("--slice", o.order.slice, "SAMPLES", "Samples that are read by one request; 0: what the index suggests");
  number("--take-batches", o.take_batches, "N", "End each epoch after so many batches; 0: take all");
  number("--memory-mb", memory, "MIB", "Memory of a rank for samples ahead; 0: what epochs() takes");
  positive("--hosts", o.order.hosts, "HOSTS", "Hosts on which the samples have homes; 1: none");
  number("--cache-gb", cache, "GB", "Gigabytes of disk cache on each host; 0: none");
  given.add_option("--cache", folder, "Folder of a disk cache of this host, of which the index is read")
      ->type_name("DIRECTORY")
      ->check(tools::not_empty);
  number("--seed", o.seed, "S", "Seed of the order");
  number("--epoch", o.epoch, "E", "The epoch");
  given.add_option("--price-1000", o.price_of_1000_requests, "Price of 1000 requests; if not given, S3's in dollars")
      ->type_name("PRICE")
      ->check(tools::decimal);
  decimal("--price-gb", o.price_of_gigabyte, "PRICE", "Price of a gigabyte that leaves the store");
  decimal("--limit", o.requests_per_second, "REQUESTS", "Requests in a second that the store takes for all ranks");
  decimal("--latency-ms", latency, "MS", "Time until the first byte of an answer");
  decimal("--mb-s", rate, "MB", "Megabytes a second of a rank's network");
  return given.run(count, texts, [&] {
    o.memory = memory * mill::MiB;
    o.cache_bytes = mill::detail::multiplied(cache, 1'000'000'000);
    o.request_seconds = latency / 1000;
    o.bytes_per_second = rate * 1e6;
    return plan(name, o, folder);
  });
}
