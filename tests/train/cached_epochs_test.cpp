// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/disk_cache.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/units.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/epoch_plan.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace millrace;

namespace {

s3::client client_of(const s3_server::background& server) {
  const std::string endpoint = server.endpoint();
  s3::config_options how;
  how.endpoint = endpoint;
  how.region = "us-east-1";
  return s3::client(s3::config(how), s3::credentials("test-key", "test-secret"));
}

/// Three shards of 40 samples each, some of which have several blocks of a cache.
void fill(s3_server::background& server) {
  for (int n = 0; n < 3; ++n) {
    std::string tar;
    tar::writer w(tar);
    for (int i = 0; i < 40; ++i) {
      w.add(std::to_string(n) + "/" + std::to_string(i) + ".bin",
            std::string(1000 + 70'000 * static_cast<std::size_t>(i % 3), static_cast<char>('a' + i % 26)));
    }
    w.finish();
    server.put("b", "train/" + std::to_string(n) + ".tar", tar);
  }
}

/// What a training sees: places, keys and checksums, in order.
std::vector<std::string> trained(const dataset& data, const std::string& state = {}) {
  runtime rt;
  std::vector<std::string> seen;
  auto run = rt.run(epochs(data, {.seed = 3, .epochs = 2, .batch = 8}, state) | batch());
  for (const std::vector<sample>& b : run) {
    for (const sample& s : b) {
      std::uint32_t crc = 0;
      for (const field& f : s.fields) crc = crc32c(crc, f.data.data(), f.data.size());
      seen.push_back(std::to_string(s.mark.epoch) + " " + std::to_string(s.mark.position) + " " + s.key + " " +
                     std::to_string(crc));
    }
  }
  return seen;
}

}  // namespace

TEST_CASE("a run's figures have what its disk cache did, and a cache that is full is in the verdict's sentence") {
  s3_server::background server;
  fill(server);
  const test::temporary_folder folder;
  const auto cache =
      disk_cache(s3::as_storage(client_of(server)), {.directory = folder.path() + "/cache", .bytes = 3 * MiB});
  runtime rt;
  auto run = rt.run(epochs(dataset(cache, "s3://b/train/"), {.seed = 3, .epochs = 4, .batch = 8}) | batch());
  for (const std::vector<sample>& b : run) CHECK(!b.empty());
  const disk_cache_stats all = run.stats().disk_cache;
  const disk_cache_stats own = cache->stats();
  CHECK(all.misses > 0);
  CHECK(all.hits == own.hits);
  CHECK(all.misses == own.misses);
  CHECK(all.miss_bytes == own.miss_bytes);
  CHECK(all.admitted == own.admitted);
  CHECK(all.refused == own.refused);
  CHECK(all.full > 0);
  CHECK(all.bytes == 3 * MiB);
  CHECK(runtime().run(from_range(std::vector<int>{1})).stats().disk_cache.misses == 0);
}

TEST_CASE("epochs() through a disk cache gives what the store gives, and reads the store once") {
  s3_server::background server;
  fill(server);
  const test::temporary_folder folder;
  const std::string cached = folder.path() + "/cache";
  for (const bool with_index : {true, false}) {
    INFO((with_index ? "with an index" : "without an index"));
    const std::string index = with_index ? folder.path() + "/train.index" : std::string();
    const auto data_of = [&](const auto& store) { return dataset(store, "s3://b/train/", {.index = index}); };
    const std::vector<std::string> wanted = trained(data_of(s3::as_storage(client_of(server))));
    REQUIRE(wanted.size() == 2 * 3 * 40);
    const auto through_cache = [&] {
      const auto cache = disk_cache(s3::as_storage(client_of(server)), {.directory = cached, .bytes = 64 * MiB});
      const std::vector<std::string> seen = trained(data_of(cache));
      CHECK(seen == wanted);
      CHECK(cache->stats().damaged == 0);
      return cache->stats();
    };
    disk_cache_stats last = through_cache();
    for (int runs = 1; last.misses != 0 && runs < 10; ++runs) last = through_cache();  // a run's end drops its writes
    CHECK(last.hits > 0);
    CHECK(last.misses == 0);
  }
}

TEST_CASE("the requests that a plan says are those that the server counts") {
  s3_server::background server;
  for (int n = 0; n < 3; ++n) {
    std::string tar;
    tar::writer w(tar);
    for (int i = 0; i < 400; ++i) w.add(std::to_string(n) + "/" + std::to_string(i) + ".bin", std::string(3000, 'x'));
    w.finish();
    server.put("b", "train/" + std::to_string(n) + ".tar", tar);
  }
  const test::temporary_folder folder;
  const dataset data(s3::as_storage(client_of(server)), "s3://b/train/", {.index = folder.path() + "/train.index"});
  static_cast<void>(trained(data));  // which makes the index
  for (const std::uint32_t world : {1u, 2u}) {
    for (const std::uint64_t tracks : {0u, 4u, 60u, 960u}) {
      epoch_plan plan;
      double steady = 0;  // of an epoch of all ranks, starts aside
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        const auto made_by = [&](std::uint64_t epochs_of_run) {
          const epochs_options how{.seed = 3,
                                   .epochs = epochs_of_run,
                                   .batch = 8,
                                   .rank = {.index = rank, .world_size = world},
                                   .tracks = tracks};
          plan = epoch_plan::of_training(data, how);
          server.log().clear();
          runtime rt;
          auto run = rt.run(epochs(data, how) | batch());
          for (const std::vector<sample>& b : run) CHECK(!b.empty());
          std::uint64_t made = 0;
          for (const s3_server::logged_request& r : server.log().entries()) made += r.method == "GET" && !r.key.empty();
          return made;
        };
        const std::uint64_t made = made_by(1);
        INFO("rank " << rank << " of " << world << ", " << tracks << " tracks");
        UNSCOPED_INFO("made " << made << " planned " << plan.most_rank_requests << " + " << plan.start_requests);
        CHECK(made <= (plan.most_rank_requests + plan.start_requests) * 5 / 4);
        CHECK(made >= plan.most_rank_requests * 3 / 4);
        steady += static_cast<double>(made_by(3) - made) / 2;
      }
      INFO(world << " ranks, " << tracks << " tracks");
      CHECK(static_cast<double>(plan.requests) == Approx(steady).epsilon(0.1));
      CHECK(plan.cost == Approx(0.0004 / 1000 * steady).epsilon(0.1));
      CHECK(plan.limit_seconds == Approx(steady / 5500).epsilon(0.1));
    }
  }
}

TEST_CASE("with homes, the second epoch of every host is read from its own disk") {
  s3_server::background server;
  fill(server);
  const test::temporary_folder folder;
  const std::string index = folder.path() + "/train.index";
  // Makes the index.
  static_cast<void>(trained(dataset(s3::as_storage(client_of(server)), "s3://b/train/", {.index = index})));
  const auto read_by_store = [&](std::uint64_t hosts) {
    std::uint64_t missed = 0;
    for (std::uint32_t host = 0; host < 3; ++host) {
      const std::string own = folder.path() + "/" + std::to_string(hosts) + "-" + std::to_string(host);
      const auto epoch = [&](std::uint64_t number) {
        const auto cache = disk_cache(s3::as_storage(client_of(server)), {.directory = own, .bytes = 64 * MiB});
        runtime rt;
        const dataset data(cache, "s3://b/train/", {.index = index, .slice = 4});
        auto run = rt.run(epochs(data, {.seed = 3,
                                        .epochs = 1,
                                        .first_epoch = number,
                                        .batch = 8,
                                        .rank = {.index = host, .world_size = 3},
                                        .hosts = hosts,
                                        .tracks = 12}) |
                          batch());
        for (const std::vector<sample>& b : run) CHECK(!b.empty());
        return cache->stats().misses;
      };
      // A run's end drops its writes, so the first epoch may have to be read more than once.
      for (int runs = 0; runs < 10 && epoch(0) != 0; ++runs) {
      }
      missed += epoch(1);
    }
    return missed;
  };
  CHECK(read_by_store(3) == 0);
  CHECK(read_by_store(1) > 10);
}

TEST_CASE("the plan of a training through a disk cache says what its second epoch reads") {
  s3_server::background server;
  fill(server);
  const test::temporary_folder folder;
  const auto cache = disk_cache(s3::as_storage(client_of(server)),
                                {.directory = folder.path() + "/cache", .bytes = 64 * MiB, .keep_free = 0});
  CHECK(cache->caches_on_disk("s3://b/train/") > 60 * MiB);
  CHECK(cache->caches_on_disk("s3://b/train/") <= 64 * MiB);
  const std::string index = folder.path() + "/train.index";
  const dataset data(cache, "s3://b/train/", {.index = index});
  static_cast<void>(trained(data));  // which makes the index
  CHECK_THAT(data.plan({.seed = 3, .batch = 8}), Catch::Matchers::Contains("the second epoch, with a disk cache of ") &&
                                                     Catch::Matchers::Contains(" on the host, reads from the store: "
                                                                               "about 0 bytes by 0 requests, $0\n"));
  const epochs_options two{.seed = 3, .batch = 8, .rank = {.index = 0, .world_size = 2}};
  CHECK_THAT(data.plan(two), Catch::Matchers::Contains("on each of 2 hosts") &&
                                 Catch::Matchers::Contains("; with .hosts = 2 0 bytes by 0 requests"));
  const dataset plain(s3::as_storage(client_of(server)), "s3://b/train/", {.index = index});
  CHECK(plain.plan({.seed = 3, .batch = 8}).find("second epoch") == std::string::npos);
}

TEST_CASE("the plan says what the disk cache has already, and what the next epoch reads") {
  s3_server::background server;
  fill(server);
  const test::temporary_folder folder;
  const std::string index = folder.path() + "/train.index";
  // Makes the index.
  static_cast<void>(trained(dataset(s3::as_storage(client_of(server)), "s3://b/train/", {.index = index})));
  const auto cache = disk_cache(s3::as_storage(client_of(server)),
                                {.directory = folder.path() + "/cache", .bytes = 64 * MiB, .keep_free = 0});
  // In slices of which no track reads a part twice, so that an epoch reads each byte once.
  const dataset data(cache, "s3://b/train/", {.index = index, .slice = 32});
  const epochs_options one{.seed = 3, .batch = 8};
  const epoch_plan before = epoch_plan::of_training(data, one);
  CHECK(before.held_known);
  CHECK(before.held_bytes == 0);
  CHECK(before.next_bytes == before.bytes);
  CHECK(before.next_requests == before.requests);
  CHECK_THAT(data.plan(one), Catch::Matchers::Contains("the disk cache of this host has 0 bytes of the samples: the "
                                                       "next epoch reads from the store about "));

  // One shard of three. A run's end drops its writes, so that it may have to be read more than once.
  const std::vector<shard> one_shard{shard("s3://b/train/1.tar")};
  const auto held_by = [&](std::uint64_t share) {
    return epoch_plan::of_training(data, one).next_bytes == before.bytes - before.bytes / 3 * share;
  };
  runtime rt;
  for (int runs = 0; runs < 10 && !held_by(1); ++runs) {
    auto chunks = from_range(one_shard) | fetch(cache, {.shards = 1, .part = 256 * KiB});
    std::uint64_t read = 0;
    for (const chunk& c : rt.run(std::move(chunks))) read += c.data.size();
    CHECK(read > before.bytes / 3);
  }
  CHECK(held_by(1));
  const std::uint64_t of_shard = epoch_plan::of_training(data, one).held_bytes;
  CHECK(of_shard > before.bytes / 4);

  // On two hosts without homes, each reads any half of all; with homes, this one may have what it reads.
  epochs_options two{.seed = 3, .batch = 8, .rank = {.index = 0, .world_size = 2}};
  const epoch_plan anywhere = epoch_plan::of_training(data, two);
  CHECK(anywhere.held_bytes == of_shard);
  CHECK(anywhere.next_bytes == Approx(anywhere.bytes / 3).margin(1));
  CHECK_THAT(data.plan(two), Catch::Matchers::Contains("the next epoch of this host reads from the store about "));
  two.hosts = 2;
  const epoch_plan at_home = epoch_plan::of_training(data, two);
  CHECK(at_home.next_bytes == Approx(at_home.bytes / 6).margin(1));

  // All of it: exactly what the second epoch then reads.
  for (int runs = 0; runs < 10 && !held_by(3); ++runs) static_cast<void>(trained(data));
  const epoch_plan now = epoch_plan::of_training(data, one);
  CHECK(now.held_bytes == 3 * of_shard);
  CHECK(now.next_bytes == 0);
  CHECK(now.next_requests == 0);
  const std::uint64_t misses = cache->stats().misses;
  static_cast<void>(trained(data));
  CHECK(cache->stats().misses == misses);
  CHECK_THAT(data.plan(one), Catch::Matchers::Contains("reads from the store about 0 bytes by 0 requests"));

  const dataset plain(s3::as_storage(client_of(server)), "s3://b/train/", {.index = index});
  CHECK_FALSE(epoch_plan::of_training(plain, one).held_known);
  CHECK(plain.plan(one).find("of this host has") == std::string::npos);
}
