// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/distributed.md. Ranks are threads here.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/feed/check_ranks.hpp>
#include <millrace/feed/dataset.hpp>
#include <millrace/feed/equal_batches.hpp>
#include <millrace/feed/shard_epochs.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar_plain.hpp>

#include "tests/feed/epochs_data.hpp"
#include "tests/feed/rank_threads.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace {

// begin check
mill::epochs_options options_of(mill::rank mine, const mill::dataset& data, const mill::sum_over_ranks& sum) {
  const mill::epochs_options options{.seed = 7, .epochs = 90, .batch = 256, .rank = mine};
  mill::check_ranks(sum, data, options);  // called by all ranks; mill::mpi_sum() under mpirun
  return options;
}
// end check

class model {
 public:
  std::vector<std::size_t> steps;  // samples of each
  void train(const std::vector<mill::sample>& batch) {
    steps.push_back(0);
    for (const mill::sample& s : batch) steps.back() += s.weight() != 0 ? 1 : 0;
  }
};

// begin equal
void train(mill::runtime& rt, mill::stream<mill::shard> list, const std::shared_ptr<const mill::storage>& store,
           mill::rank mine, const mill::sum_over_ranks& sum, model& m) {
  const mill::equal_batches equal(4, mill::uneven::pad, sum);
  auto training = mill::shard_epochs(std::move(list), {.seed = 7, .epochs = 3, .rank = mine, .equal = &equal}) |
                  mill::fetch(store) | mill::untar_plain() | mill::group_samples() | mill::shuffle({.window = 4096}) |
                  equal.fill() | mill::batch();
  auto run = rt.run(std::move(training));
  for (const std::vector<mill::sample>& batch : equal.of(run)) m.train(batch);
}
// end equal

// begin expanded
std::vector<mill::sample> halves(mill::sample s) { return {s, s}; }

void train_on_halves(mill::runtime& rt, const mill::dataset& data, mill::rank mine, const mill::sum_over_ranks& sum,
                     model& m) {
  const mill::equal_batches equal(3, mill::uneven::pad, sum);
  auto training = mill::epochs(data, {.seed = 7, .batch = 4, .rank = mine, .equal = &equal}) |
                  mill::flat_map(halves) | equal.fill() | mill::batch();
  auto run = rt.run(std::move(training));
  for (const std::vector<mill::sample>& batch : equal.of(run)) m.train(batch);
}
// end expanded

}  // namespace

TEST_CASE("guide: ranks take equally many steps of what is made of samples") {
  const mill::test::tar_dataset data({7, 20, 2}, 100);
  mill::test::thread_sum sum(2);
  std::vector<model> models(2);
  const auto errors = mill::test::on_ranks(2, [&](std::size_t r) {
    mill::runtime rt;
    train_on_halves(rt, mill::dataset(data.store, data.indexes, {.prefix = "mem:"}),
                    {.index = static_cast<std::uint32_t>(r), .world_size = 2}, std::ref(sum), models[r]);
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(models[0].steps.size() == models[1].steps.size());
  std::size_t samples = 0;
  for (const model& m : models) {
    for (const std::size_t n : m.steps) samples += n;
  }
  CHECK(samples == 2 * 29);
}

TEST_CASE("guide: ranks that disagree get an error") {
  const mill::test::tar_dataset data({7, 20, 1}, 100);
  for (const bool agree : {true, false}) {
    mill::test::thread_sum sum(2);
    const auto errors = mill::test::on_ranks(2, [&](std::size_t r) {
      const auto index = static_cast<std::uint32_t>(agree ? r : 0);
      options_of({.index = index, .world_size = 2}, mill::dataset(data.store, data.indexes),
                 std::ref(sum));
    });
    CHECK(errors == std::vector<std::string>(2, agree ? ""
                                                      : "2 processes take part, and 2 of them say that they are "
                                                        "rank 0"));
  }
}

TEST_CASE("guide: ranks with unequal shards have equal batches") {
  mill::test::thread_sum sum(2);
  std::vector<model> models(2);
  const auto errors = mill::test::on_ranks(2, [&](std::size_t r) {
    const mill::test::tar_dataset data({7, 20, 1, 9}, 100);
    mill::runtime rt;
    train(rt, mill::shards("mem:10{0..3}.tar"), data.store, {.index = static_cast<std::uint32_t>(r), .world_size = 2},
          std::ref(sum), models[r]);
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(models[0].steps.size() == models[1].steps.size());
  std::size_t samples = 0;
  for (const model& m : models) {
    for (const std::size_t n : m.steps) samples += n;
  }
  CHECK(samples == 3 * 37);
}
