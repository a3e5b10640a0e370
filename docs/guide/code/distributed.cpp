// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/distributed.md. Ranks are threads here.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/environment.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/loader/rank_from_environment.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/equal_batches.hpp>
#include <millrace/train/rank_group.hpp>
#include <millrace/train/shard_epochs.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace {

class model {
 public:
  std::vector<std::size_t> steps;  // samples of each
  void train(const std::vector<mill::sample>& batch) {
    steps.push_back(0);
    for (const mill::sample& s : batch) steps.back() += s.weight() != 0 ? 1 : 0;
  }
};

// begin group
void train(mill::runtime& rt, const mill::dataset& data, const mill::rank_group& ranks, const std::string& saved,
           model& m) {
  auto run = rt.run(mill::epochs(data, {.seed = 7, .epochs = 3, .batch = 4, .ranks = ranks}, saved) | mill::batch());
  for (const std::vector<mill::sample>& batch : run) m.train(batch);
}
// end group

// begin shared
mill::dataset corpus(const mill::s3::client& s3) {
  return mill::dataset(s3, "s3://corpus/train/",
                       {.index = "s3://corpus/train/millrace.index", .listing = "s3://corpus/train/millrace.listing"});
}
// end shared

// begin homes
mill::epochs_options with_homes(const mill::rank_group& ranks) {
  return {.seed = 7, .epochs = 90, .batch = 256, .ranks = ranks, .hosts = mill::hosts_of(ranks.process())};
}
// end homes

// begin store
mill::rank_group by_store(const mill::s3::client& s3, const mill::environment& variables) {
  return {mill::rank_from_environment(variables), s3, "s3://runs/17/ranks/"};
}
// end store

// begin equal
void train(mill::runtime& rt, mill::stream<mill::shard> list, const std::shared_ptr<const mill::storage>& store,
           const mill::rank_group& ranks, model& m) {
  const mill::equal_batches equal(4, mill::uneven::pad, ranks);
  auto training = mill::shard_epochs(std::move(list), {.seed = 7, .epochs = 3, .rank = ranks.mine(), .equal = &equal}) |
                  mill::fetch(store) | mill::untar_plain() | mill::group_samples() | mill::shuffle({.window = 4096}) |
                  equal.fill() | mill::batch();
  auto run = rt.run(std::move(training));
  for (const std::vector<mill::sample>& batch : equal.of(run)) m.train(batch);
}
// end equal

// begin expanded
std::vector<mill::sample> halves(mill::sample s) { return {s, s}; }

void train_on_halves(mill::runtime& rt, const mill::dataset& data, const mill::rank_group& ranks, model& m) {
  const mill::equal_batches equal(3, mill::uneven::pad, ranks);
  auto training = mill::epochs(data, {.seed = 7, .batch = 4, .ranks = ranks, .equal = &equal}) |
                  mill::flat_map(halves) | equal.fill() | mill::batch();
  auto run = rt.run(std::move(training));
  for (const std::vector<mill::sample>& batch : equal.of(run)) m.train(batch);
}
// end expanded

std::size_t samples_of(const std::vector<model>& models) {
  std::size_t samples = 0;
  for (const model& m : models) {
    for (const std::size_t n : m.steps) samples += n;
  }
  return samples;
}

}  // namespace

TEST_CASE("guide: ranks take equally many steps of what is made of samples") {
  const mill::test::tar_dataset data({7, 20, 2}, 100);
  mill::test::thread_gather gather(2);
  std::vector<model> models(2);
  const auto errors = mill::test::on_ranks(2, [&](std::size_t r) {
    mill::runtime rt;
    train_on_halves(rt, mill::dataset(data.store, data.indexes, {.prefix = "mem:"}), gather.group(r), models[r]);
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(models[0].steps.size() == models[1].steps.size());
  CHECK(samples_of(models) == 2 * 29);
}

TEST_CASE("guide: samples have homes on the launcher's hosts") {
  mill::test::thread_gather gather(2);
  const mill::rank_group ranks = gather.group(1);
  CHECK(with_homes(ranks).hosts == 2);  // the launcher says nothing of processes on one machine
  const mill::test::tar_dataset data({7, 20, 1}, 100);
  const mill::dataset all(data.store, data.indexes, {.prefix = "mem:"});
  CHECK(all.plan({.batch = 4, .rank = {.index = 0, .world_size = 2}, .hosts = 2}).find("homes on 2 hosts") !=
        std::string::npos);
}

TEST_CASE("guide: ranks that know each other train, or get an error") {
  mill::test::thread_gather gather(2);
  std::vector<model> models(2);
  const auto errors = [&](const std::string& saved) {
    return mill::test::on_ranks(2, [&](std::size_t r) {
      const mill::test::tar_dataset data({7, 20, 1}, 100);
      mill::runtime rt;
      train(rt, mill::dataset(data.store, data.indexes, {.prefix = "mem:"}), gather.group(r), r == 1 ? saved : "",
            models[r]);
    });
  };
  CHECK(errors("") == std::vector<std::string>(2));
  CHECK(samples_of(models) == 3 * 28);
  CHECK(errors("{}")[0] ==
        "rank 1 of 2 cannot begin, so no rank does: resume: the state is not one of epochs()");
}

TEST_CASE("guide: a group by the store of one process asks none") {
  mill::s3::config_options where;
  where.endpoint = "http://127.0.0.1:9";
  const mill::s3::client s3{mill::s3::config(where), mill::s3::credentials("key", "secret")};
  const mill::environment none([](const char*) -> const char* { return nullptr; });
  CHECK(by_store(s3, none).gather_now({7}) == std::vector<std::uint64_t>{7});
  CHECK(corpus(s3).exact());
}

TEST_CASE("guide: ranks with unequal shards have equal batches") {
  mill::test::thread_gather gather(2);
  std::vector<model> models(2);
  const auto errors = mill::test::on_ranks(2, [&](std::size_t r) {
    const mill::test::tar_dataset data({7, 20, 1, 9}, 100);
    mill::runtime rt;
    train(rt, mill::shards("mem:10{0..3}.tar"), data.store, gather.group(r), models[r]);
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(models[0].steps.size() == models[1].steps.size());
  CHECK(samples_of(models) == 3 * 37);
}
