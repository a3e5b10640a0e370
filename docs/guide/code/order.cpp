// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/order.md.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/combine.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/epoch_fingerprint.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/epoch_plan.hpp>
#include <millrace/train/shard_epochs.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"

namespace mill = millrace;

namespace {

// begin epoch
mill::stream<mill::shard> shards_of(std::uint64_t epoch, mill::rank r) {
  return mill::shards("s3://corpus/train-{000..099}.tar")     // the same list in every process,
         | mill::shuffle_shards({.seed = 7, .epoch = epoch})  // in the same order,
         | mill::split_by_rank(r);                            // of which each takes its share
}
// end epoch

// begin random
bool flipped(const mill::sample& s) {
  constexpr std::uint64_t flip = 1;  // one number for each purpose
  return s.random(flip).uniform() < 0.5;
}
// end random

// begin groups
mill::rank group_of(const mill::rank& mine, std::uint32_t members) {  // neighbours see the same samples
  return {.index = mine.index / members, .world_size = mine.world_size / members};
}
// end groups

// begin plan
std::string plan_of(const mill::dataset& data, const mill::epochs_options& training) {
  const mill::epoch_plan plan = mill::epoch_plan::of_training(
      data, training, {.price_of_1000_requests = 0.0005, .price_of_gigabyte = 0.02, .request_seconds = 0.03});
  return std::to_string(plan.batches) + " batches, cost " + std::to_string(plan.cost) + "\n" + plan.text();
}
// end plan

mill::stream<mill::sample> training_of(const std::shared_ptr<const mill::storage>& store, const std::string& file,
                                       const std::string& saved) {
  const mill::dataset corpus(store, mill::shards("mem:10{0..2}.tar"), {.index = file});
  return mill::epochs(corpus, {.seed = 7, .epochs = 3, .batch = 4}, saved);
}

mill::stream<mill::sample> streamed(const std::shared_ptr<const mill::storage>& store, const std::string& prefix,
                                    const std::string& saved) {
  const mill::dataset corpus(store, prefix, {.shards = 8,      // read in turn, a sample each
                                             .window = 4096});  // samples that the next one is drawn from
  return mill::epochs(corpus, {.seed = 7, .epochs = 3, .batch = 4}, saved);
}

mill::stream<mill::sample> mixed(const mill::dataset& web, const mill::dataset& books, mill::rank r,
                                 const std::string& saved) {
  const mill::dataset both({{web, 3}, {books, 1}}, {.until = mill::mix_until::last_end});
  return mill::epochs(both, {.seed = 7, .epochs = 3, .batch = 4, .rank = r, .tracks = 40}, saved);
}

// begin rounds
void note(const mill::sample& s, const mill::index_set& its_indexes, const std::string& its_prefix,
          std::map<std::pair<std::uint32_t, std::uint64_t>, mill::epoch_fingerprint>& rounds) {
  const mill::shard& from = *s.from.from;  // the number of its data set, and its round there
  const std::size_t number = its_indexes.find(from.url.substr(its_prefix.size())).value();
  rounds[{from.dataset, from.epoch}].add({number, s.from.ordinal}, from.epoch);
}
// end rounds

// begin index
std::vector<mill::sample_place> samples_of(const mill::index_set& set, std::uint64_t epoch, mill::rank r) {
  const mill::sample_order order(set.counts(), 7, epoch, {.slice = set.slice()});
  const mill::rank_share share(order.tracks(), r.index, r.world_size);
  std::vector<mill::sample_place> mine;
  for (std::uint64_t position = 0; position < order.size();) {  // or where the training before stopped
    const mill::order_step step = mill::step_at(order.size(), position, 32, r.world_size);
    for (const std::uint64_t g : share.positions(step)) mine.push_back(order.at(g));  // 32, in the last step fewer
    position += step.count;
  }
  return mine;
}
// end index

std::vector<std::string> names(mill::stream<mill::shard> shards) {
  mill::testing::virtual_loop loop;
  std::vector<std::string> all;
  for (const mill::shard& s : block_on(loop, collect(std::move(shards)))) all.push_back(s.url);
  return all;
}

std::vector<std::int64_t> numbers(mill::stream<std::int64_t> source) {
  mill::testing::virtual_loop loop;
  return block_on(loop, collect(std::move(source)));
}

}  // namespace

TEST_CASE("the guide's epochs differ, and repeat", "[guide]") {
  const std::vector<std::string> first = names(shards_of(0, mill::rank()));
  CHECK(first == names(shards_of(0, mill::rank())));
  CHECK(first != names(shards_of(1, mill::rank())));
  std::vector<std::string> all;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::vector<std::string> mine = names(shards_of(0, mill::rank{.index = i, .world_size = 4}));
    CHECK(mine.size() == 25);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  CHECK(std::unique(all.begin(), all.end()) - all.begin() == 100);
}

TEST_CASE("the guide's window holds what it says", "[guide]") {
  auto samples = mill::iota(std::int64_t(10000));
  const std::uint64_t epoch = 3;
  // begin window
  auto shuffled =
      std::move(samples) | mill::shuffle({.window = 4096, .bytes = 1 * mill::GiB, .seed = 7, .epoch = epoch});
  // end window
  std::vector<std::int64_t> got = numbers(std::move(shuffled));
  CHECK(!std::is_sorted(got.begin(), got.end()));
  std::sort(got.begin(), got.end());
  CHECK(got == numbers(mill::iota(std::int64_t(10000))));
}

TEST_CASE("the guide's mix takes three of four from the first source", "[guide]") {
  auto web = mill::iota(std::int64_t(100000));
  auto books = mill::iota(std::int64_t(100000));
  const std::uint64_t epoch = 0;
  // begin mix
  std::vector<mill::stream<std::int64_t>> sources;
  sources.push_back(std::move(web));
  sources.push_back(std::move(books));
  auto both = mill::mix(std::move(sources), {3, 1}, {.seed = 7, .epoch = epoch, .end = mill::mix_end::first}) |
              mill::take(10000);
  // end mix
  CHECK(numbers(std::move(both)).size() == 10000);
}

TEST_CASE("the guide's samples are all read, each by one of the ranks", "[guide]") {
  std::vector<mill::shard_index> indexes;
  for (int shard = 0; shard < 3; ++shard) {
    mill::tar_index_builder builder(std::to_string(shard), "x.tar", mill::tar_index_builder::checksums::none);
    for (std::uint64_t i = 0; i < 100; ++i) {
      mill::tar::entry e;
      e.name = std::to_string(i) + ".jpg";
      e.header_offset = i * 1024;
      e.data_offset = e.header_offset + 512;
      builder.add(e);
    }
    indexes.push_back(builder.finish(100 * 1024 + 1024, std::string()));
  }
  const mill::index_set set(std::move(indexes));
  std::vector<int> read(300, 0);
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto mine = samples_of(set, 1, mill::rank{.index = i, .world_size = 4});
    CHECK(mine.size() == 75);
    for (const mill::sample_place& p : mine) ++read.at(p.shard * 100 + p.ordinal);
  }
  CHECK(std::count(read.begin(), read.end(), 1) == 300);
}

TEST_CASE("the guide's samples are flipped alike every time, and about half of them", "[guide]") {
  const auto from = std::make_shared<const mill::shard>("s3://corpus/train-000.tar");
  int all = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const mill::sample s("key", mill::origin(from, 0, i));
    CHECK(flipped(s) == flipped(s));
    all += flipped(s) ? 1 : 0;
  }
  CHECK(all > 430);
  CHECK(all < 570);
}

namespace {

class model {
 public:
  void train(const std::vector<mill::sample>& batch) {
    for (const mill::sample& s : batch) samples += s.weight() != 0 ? 1 : 0;
  }
  void validate(std::uint64_t) { ++validations; }
  bool due() const { return samples % 12 == 0; }
  void save(std::string text) { saved = std::move(text); }
  std::size_t samples = 0;
  std::size_t validations = 0;
  std::string saved;
};

// begin epochs
void train(mill::runtime& rt, const mill::dataset& data, mill::rank r, model& m) {
  auto training = mill::epochs(data, {.seed = 7, .epochs = 3, .batch = 4, .rank = r}, m.saved) | mill::batch();
  auto run = rt.run(std::move(training));
  for (const std::vector<mill::sample>& batch : run) {
    m.train(batch);  // entries of weight() 0 fill up the last batch of an epoch
    if (batch.back().mark.last) m.validate(batch.back().mark.epoch);
    if (m.due()) m.save(run.state());
  }
}
// end epochs

}  // namespace

TEST_CASE("the guide's training takes every sample three times, and none again when it is over", "[guide]") {
  const mill::test::tar_dataset data({9, 10}, 100);
  mill::runtime rt;
  model m;
  const mill::dataset corpus(data.store, data.indexes, {.prefix = "mem:"});
  train(rt, corpus, mill::rank(), m);
  CHECK(m.samples == 57);
  CHECK(m.validations == 3);
  // What was not taken when the last state was saved.
  model again;
  again.saved = m.saved;
  train(rt, corpus, mill::rank(), again);
  const mill::epoch_state at = mill::epoch_state::parse(m.saved);
  CHECK(again.samples == 57 - (at.epoch * 19 + at.position));
}

TEST_CASE("the guide's mix takes three of four from the first data set, and each sample once a round", "[guide]") {
  const auto store = std::make_shared<mill::test::dataset_store>();
  const mill::test::tar_dataset web({9, 30}, 100, 1, "web/", store);
  const mill::test::tar_dataset books({10}, 100, 2, "books/", store);
  const mill::dataset web_set(store, web.indexes, {.prefix = web.prefix});
  const mill::dataset books_set(store, books.indexes, {.prefix = books.prefix});
  mill::runtime rt;
  std::map<std::pair<std::uint32_t, std::uint64_t>, mill::epoch_fingerprint> rounds;
  std::string saved;
  for (const std::uint32_t world : {1U, 2U}) {  // five batches of one rank, the rest on two
    std::vector<std::string> states;
    for (std::uint32_t i = 0; i < world; ++i) {
      auto run = rt.run(mixed(web_set, books_set, {.index = i, .world_size = world}, saved) |
                        mill::batch(4));
      for (int n = 0; world == 2 || n < 5; ++n) {
        const auto b = run.next();
        if (!b) break;
        for (const mill::sample& s : *b) {
          if (s.weight() == 0) continue;
          const mill::test::tar_dataset& its = s.from.from->dataset == 0 ? web : books;
          note(s, *its.indexes, its.prefix, rounds);
        }
      }
      states.push_back(run.state());
    }
    saved = states.front();
    CHECK(states.back() == saved);
  }
  // An epoch takes each of the 39 once, and 12 times one of the 10.
  for (std::uint64_t round = 0; round < 3; ++round) {
    CHECK(verify_epoch(*web.indexes->counts(), round, rounds[{0, round}]) == "");
    CHECK(verify_epoch(*books.indexes->counts(), round, rounds[{1, round}]) == "");
  }
  CHECK(rounds[{1, 3}].samples() == 3 * 12 - 30);
}

TEST_CASE("the guide's list of shards gives three epochs", "[guide]") {
  const mill::test::tar_dataset data({9, 10}, 100);
  const std::shared_ptr<const mill::storage> store = data.store;
  mill::stream<mill::shard> list = mill::shards("mem:10{0..1}.tar");
  // begin listed
  auto training = mill::shard_epochs(std::move(list), {.seed = 7, .epochs = 3}) | mill::fetch(store) |
                  mill::untar_plain() | mill::group_samples() | mill::shuffle({.window = 4096}) | mill::batch(4);
  // end listed
  mill::runtime rt;
  std::vector<std::size_t> sizes;
  for (const std::vector<mill::sample>& b : rt.run(std::move(training))) sizes.push_back(b.size());
  CHECK(sizes == std::vector<std::size_t>{4, 4, 4, 4, 3, 4, 4, 4, 4, 3, 4, 4, 4, 4, 3});
}

TEST_CASE("the guide's page on order: groups, plans and kept indexes", "[guide]") {
  const mill::test::tar_dataset data({5, 6, 7}, 300);
  // Four processes in groups of two.
  std::vector<std::vector<std::string>> got(4);
  for (std::uint32_t r = 0; r < 4; ++r) {
    mill::test::settings o{.seed = 7, .epochs = 2, .batch = 4, .rank = group_of({.index = r, .world_size = 4}, 2)};
    for (const auto& [position, key] : mill::test::delivered_by(data.open(o), 4).samples) {
      got[r].push_back(std::to_string(position) + key);
    }
  }
  CHECK(got[0] == got[1]);
  CHECK(got[2] == got[3]);
  CHECK(got[0].size() + got[2].size() == 36);
  CHECK(plan_of(mill::dataset(data.store, data.indexes), {.batch = 4}).substr(0, 16) == "5 batches, cost ");

  mill::test::temporary_folder at;
  const std::string file = at.file("index");
  mill::runtime rt;
  std::string saved;
  std::size_t samples = 0;
  for (const int most : {2, 1000}) {
    auto run = rt.run(training_of(data.store, file, saved) | mill::batch(4));
    for (int n = 0; n < most; ++n) {
      const auto b = run.next();
      if (!b) break;
      for (const mill::sample& s : *b) samples += s.weight() != 0;
    }
    saved = run.state();
  }
  CHECK(samples == 3 * 18);
  saved.clear();
  samples = 0;
  for (const int most : {2, 1000}) {  // without an index
    auto run = rt.run(streamed(data.store, "mem:", saved) | mill::batch(4));
    for (int n = 0; n < most; ++n) {
      const auto b = run.next();
      if (!b) break;
      for (const mill::sample& s : *b) samples += s.weight() != 0;
    }
    saved = run.state();
  }
  CHECK(samples == 3 * 18);
}
