// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// epochs_options::hosts: each host reads the same samples in every epoch.

#include <millrace/train/dataset.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/train/epoch_plan.hpp>

#include "tests/support/catch.hpp"
#include "tests/train/epochs_data.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::delivered;
using test::delivered_by;
using test::tar_dataset;

namespace {

const std::vector<std::size_t> uneven_counts{30, 0, 7, 61, 1, 24};  // 123 samples

test::settings options_of(std::uint32_t index, std::uint32_t world, std::uint64_t hosts) {
  test::settings o{.seed = 5, .epochs = 3, .batch = 4, .rank = {.index = index, .world_size = world}};
  o.tracks = 24;
  o.slice = 8;
  o.hosts = hosts;
  return o;
}

std::string refusal(const tar_dataset& data, const test::settings& o) {
  try {
    static_cast<void>(data.open(o));
  } catch (const configuration_error& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("with .hosts, every sample comes once an epoch, and each host's are the same ones in every epoch") {
  const tar_dataset data(uneven_counts, 900);
  for (const std::uint64_t hosts : {2U, 3U, 4U}) {
    for (const std::uint32_t each : {1U, 2U, 5U}) {
      const auto world = static_cast<std::uint32_t>(hosts * each);
      INFO(hosts << " hosts of " << each << " ranks");
      std::map<std::uint64_t, std::string> all;
      std::map<std::uint64_t, std::set<std::string>> of_host;
      for (std::uint32_t r = 0; r < world; ++r) {
        const delivered one = delivered_by(data.open(options_of(r, world, hosts)), 4);
        CHECK(one.batches == std::vector<std::uint64_t>(3, (123 + 4 * world - 1) / (4 * world)));
        for (const auto& [position, key] : one.samples) {
          CHECK(all.emplace(position, key).second);
          of_host[(position >> 32) * hosts + r / each].insert(key);
        }
      }
      std::map<std::uint64_t, std::string> wanted;
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const std::vector<std::string> keys = data.order(5, epoch, {.tracks = 24, .slice = 8, .hosts = hosts});
        for (std::size_t g = 0; g < keys.size(); ++g) wanted[epoch << 32 | g] = keys[g];
      }
      CHECK(all == wanted);
      for (std::uint64_t h = 0; h < hosts; ++h) {
        CHECK(of_host[h].size() == 123 / hosts + (h < 123 % hosts ? 1 : 0));
        CHECK(of_host[h] == of_host[hosts + h]);
        CHECK(of_host[h] == of_host[2 * hosts + h]);
      }
    }
  }
}

TEST_CASE("with .hosts, a training goes on after any step with as many hosts, of any number of ranks") {
  const tar_dataset data(uneven_counts, 900);
  const auto wanted = [&] {
    std::vector<std::string> keys;
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      const std::vector<std::string> more = data.order(5, epoch, {.tracks = 24, .slice = 8, .hosts = 4});
      keys.insert(keys.end(), more.begin(), more.end());
    }
    return keys;
  }();
  rng random(3);
  for (int i = 0; i < 25; ++i) {
    std::map<std::uint64_t, std::string> all;
    std::string state;
    for (bool ended = false; !ended;) {
      const std::uint32_t world = 4 * static_cast<std::uint32_t>(1 + random.below(3));
      const std::size_t batch = 1 + random.below(5);
      const std::size_t batches = 1 + random.below(6);
      std::string next;
      for (std::uint32_t r = 0; r < world; ++r) {
        test::settings o = options_of(r, world, 4);
        o.batch = batch;
        o.resume = state;
        const delivered one = delivered_by(data.open(o), batch, batches);
        for (const auto& [position, key] : one.samples) {
          INFO("position " << position);
          CHECK(all.emplace(position, key).second);
        }
        if (r == 0) next = one.state;
        CHECK(one.state == next);
      }
      state = next;
      ended = epoch_state::parse(state).epoch == 3;
    }
    std::vector<std::string> keys;
    for (const auto& [position, key] : all) keys.push_back(key);
    CHECK(keys == wanted);
  }
}

TEST_CASE("another number of hosts is refused by name inside an epoch, and another order between epochs") {
  const tar_dataset data(uneven_counts, 900);
  test::settings o = options_of(0, 8, 4);
  const std::string inside = delivered_by(data.open(o), 4, 2).state;
  CHECK_THAT(inside, Contains("\"hosts\":4"));
  CHECK(epoch_state::parse(inside).hosts == 4);
  o.resume = inside;
  CHECK(refusal(data, o) == "none");
  o.hosts = 2;
  CHECK_THAT(refusal(data, o), Contains("its number of hosts was 4 and is 2"));
  o.hosts = 1;
  CHECK_THAT(refusal(data, o), Contains("its number of hosts was 4 and is 1"));
  o.tracks = 0;  // those of the state fit eight hosts, and not the ranks' default
  o.hosts = 8;
  CHECK_THAT(refusal(data, o), Contains("its number of hosts was 4 and is 8"));

  test::settings first = options_of(0, 8, 4);
  const std::string between = delivered_by(data.open(first), 4, 4).state;
  CHECK(epoch_state::parse(between).epoch == 1);
  CHECK(epoch_state::parse(between).position == 0);
  std::map<std::uint64_t, std::string> all;
  for (std::uint32_t r = 0; r < 6; ++r) {
    test::settings other = options_of(r, 6, 3);
    other.resume = between;
    for (const auto& [position, key] : delivered_by(data.open(other), 4).samples) {
      if (position >> 32 == 1) CHECK(all.emplace(position, key).second);
    }
  }
  const std::vector<std::string> keys = data.order(5, 1, {.tracks = 24, .slice = 8, .hosts = 3});
  REQUIRE(all.size() == keys.size());
  for (const auto& [position, key] : all) CHECK(key == keys[static_cast<std::size_t>(position & UINT32_MAX)]);
}

TEST_CASE("a state of former homes goes on with them, until the number of hosts is another one") {
  const tar_dataset data(uneven_counts, 900);
  epoch_state state = epoch_state::parse(delivered_by(data.open(options_of(0, 4, 4)), 4, 2).state);
  state.former_homes = true;  // as a version before wrote it
  const auto goes_on = [&](std::uint64_t hosts, bool former) {
    std::map<std::uint64_t, std::string> all;
    for (std::uint32_t r = 0; r < 12; ++r) {
      test::settings o = options_of(r, 12, hosts);
      o.resume = state.text();
      const delivered one = delivered_by(data.open(o), 4);
      all.insert(one.samples.begin(), one.samples.end());
      CHECK(epoch_state::parse(one.state).former_homes == former);
    }
    std::map<std::uint64_t, std::string> wanted;
    for (std::uint64_t epoch = state.epoch; epoch < 3; ++epoch) {
      const order_options how{.tracks = 24, .slice = 8, .hosts = hosts, .former_homes = former};
      const std::vector<std::string> keys = data.order(5, epoch, how);
      for (std::size_t g = 0; g < keys.size(); ++g) wanted[epoch << 32 | g] = keys[g];
    }
    wanted.erase(wanted.begin(), wanted.lower_bound(state.epoch << 32 | state.position));
    CHECK(all == wanted);
  };
  goes_on(4, true);
  state.epoch = 1;
  state.position = 0;
  goes_on(4, true);
  goes_on(3, false);
}

TEST_CASE("without .hosts, orders and states are what they were") {
  const tar_dataset data(uneven_counts, 900);
  const delivered one = delivered_by(data.open(options_of(0, 1, 1)), 4, 3);
  CHECK(one.state.find("hosts") == std::string::npos);
  const std::vector<std::string> keys = data.order(5, 0, {.tracks = 24, .slice = 8});
  for (const auto& [position, key] : one.samples) CHECK(key == keys[static_cast<std::size_t>(position)]);
}

TEST_CASE(".hosts that cannot be is refused by a sentence") {
  const tar_dataset data(uneven_counts, 900);
  CHECK_THAT(refusal(data, options_of(0, 8, 3)), Contains(".hosts is 3, and 8 ranks are not equally many on each"));
  CHECK_THAT(refusal(data, options_of(0, 1, 2)), Contains(".hosts is 2, and 1 rank is not"));
  CHECK_THAT(refusal(data, options_of(0, 8, 0)), Contains(".hosts is 0"));
  test::settings o = options_of(0, 10, 5);
  CHECK_THAT(refusal(data, o), Contains("5 hosts do not divide 24 tracks"));
  // Dealt in turn: rank 1 is the first one of the second host.
  o = options_of(1, 8, 2);
  o.rank.local_index = 0;
  o.rank.local_world_size = 4;
  o.rank.source = "Open MPI";
  CHECK_THAT(refusal(data, o), Contains("rank 1 is number 0 of 4 on its host (Open MPI)"));
  o.rank.local_index = 1;
  CHECK(refusal(data, o) == "none");
  test::settings streamed = options_of(0, 2, 2);
  streamed.streamed = true;
  streamed.uneven = true;
  CHECK_THROWS_WITH(test::train_on(stream<shard>(), data.store, streamed),
                    Contains(".hosts is for a dataset with an index"));
  const dataset several({{dataset(data.store, data.indexes, {.prefix = data.prefix}), 1, 0}});
  CHECK_THROWS_WITH(epochs(several, {.batch = 4, .rank = {.index = 0, .world_size = 2}, .hosts = 2}),
                    Contains(".hosts is for one data set, not for a mix"));
}

TEST_CASE("the number of hosts follows from the launcher's numbers") {
  CHECK(hosts_of({}) == 1);
  CHECK(hosts_of({.index = 5, .world_size = 8, .local_index = 1, .local_world_size = 4}) == 2);
  CHECK_THROWS_WITH(
      hosts_of({.index = 5, .world_size = 9, .local_index = 1, .local_world_size = 4, .source = "torchrun"}),
      Contains("9 processes, 4 of them on this machine (torchrun): not equally many on each"));
  CHECK_THROWS_WITH(hosts_of({.index = 5, .world_size = 8, .local_index = 1, .source = "Slurm"}),
                    Contains("how many processes a machine has is not known (Slurm)"));
}

TEST_CASE("a plan says what a second epoch reads from the store with a disk cache, with homes and without") {
  const auto counts = std::make_shared<const shard_counts>(std::vector<std::uint64_t>(100, 1000));
  const std::uint64_t bytes = 100'000ull * 100'000;
  plan_options o{.world = 16, .batch = 8, .order = {.tracks = 960, .slice = 32}, .cache_bytes = 2'000'000'000};
  o.hosts = 8;  // each reads 1.25 GB
  o.price_of_gigabyte = 0.1;
  o.price_of_1000_requests = 0.4;
  const epoch_plan without = epoch_plan::of(counts, bytes, o);
  CHECK(without.second_bytes == bytes / 8 * 7);
  CHECK(without.second_cost == Approx(without.cost * 7 / 8).epsilon(0.001));
  CHECK_THAT(without.text(),
             Contains("of 1907.3 MiB on each of 8 hosts, reads from the store: about 8.1 GiB by ") ||
                 Contains("of 1907.3 MiB on each of 8 hosts, reads from the store: about 8344.7 MiB by "));
  CHECK_THAT(without.text(), Contains("; with .hosts = 8 0 bytes by 0 requests, cost 0.00"));
  CHECK_FALSE(without.homes);
  o.order.hosts = 8;
  const epoch_plan homes = epoch_plan::of(counts, bytes, o);
  CHECK(homes.second_bytes == 0);
  CHECK(homes.second_requests == 0);
  CHECK(homes.second_cost == 0);
  CHECK(homes.homes);
  CHECK_THAT(homes.text(), Contains("reads from the store: about 0 bytes by 0 requests, cost 0.00; without .hosts 8"));
  CHECK_THAT(homes.text(), Contains("homes on 8 hosts: a rank sees the samples of its host alone, and two of them 8 "
                                    "times as often in one batch as by chance; of one shard together"));
  CHECK(homes.homeless.mates_of_batch == without.quality.mates_of_batch);
  CHECK(homes.quality.mates_of_step < 1.2);
  o.cache_bytes = 500'000'000;  // of 1.25 GB
  CHECK(static_cast<double>(epoch_plan::of(counts, bytes, o).second_bytes) == Approx(0.6 * 1e10));
  o.take_batches = 391;  // half of an epoch, of which any half comes next
  CHECK(static_cast<double>(epoch_plan::of(counts, bytes, o).second_bytes) == Approx(0.5 * 0.6 * 1e10).epsilon(0.01));
  o.take_batches = 0;
  o.order.hosts = 1;
  CHECK(static_cast<double>(epoch_plan::of(counts, bytes, o).second_bytes) == Approx(0.95 * 1e10));
  o.hosts = 3;  // 16 ranks are not equally many on each
  CHECK(epoch_plan::of(counts, bytes, o).text().find("with .hosts") == std::string::npos);
  o.cache_bytes = 0;
  CHECK(epoch_plan::of(counts, bytes, o).text().find("second epoch") == std::string::npos);
}

TEST_CASE("a plan's requests with homes are those that are made") {
  rng random(4);
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t hosts = 2 + random.below(5);
    std::vector<std::uint64_t> sizes;
    for (std::uint64_t n = 1 + random.below(6); n > 0; --n) sizes.push_back(random.below(200));
    sizes.push_back(10);
    const auto counts = std::make_shared<const shard_counts>(sizes);
    const order_options how{.tracks = hosts * (1 + random.below(9)), .slice = 1 + random.below(20), .hosts = hosts};
    const epoch_plan plan = epoch_plan::of(counts, 1000 * counts->samples(), {.world = hosts, .order = how});
    const sample_order o(counts, 0, 0, how);
    std::set<std::pair<std::uint64_t, std::uint64_t>> visits;  // track and slice
    for (std::uint64_t t = 0; t < o.tracks(); ++t) {
      const sample_order::stretch track = o.track(t);
      for (std::uint64_t p = track.begin; p < track.begin + track.length; ++p) visits.emplace(t, o.slice_at(p).on_tape);
    }
    CHECK(plan.slice_visits == visits.size());
  }
}
