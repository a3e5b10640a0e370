// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/dataset.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/decode/array.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/formats/line_shards.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/train/detail/listed_index.hpp>
#include <millrace/train/epoch_plan.hpp>
#include <millrace/train/equal_batches.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/scanned.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"

// Promises of epochs() that no other test here would see broken.

using namespace millrace;
using Catch::Matchers::Contains;
using test::tar_dataset;

namespace {

using names = std::vector<std::string>;

task<std::vector<sample>> all_of(stream<sample> in) {
  std::vector<sample> all;
  while (std::optional<sample> s = co_await in.next()) all.push_back(std::move(*s));
  co_return std::move(all);
}
std::vector<sample> taken(stream<sample> in) {
  testing::virtual_loop loop;
  return block_on(loop, all_of(std::move(in)));
}

/// Objects of a store that ignores the version that it is asked for: after some requests it has another one.
class careless_store final : public storage {
 public:
  std::string content;
  std::string etag;
  mutable std::uint64_t requests = 0;
  std::uint64_t changes_after = UINT64_MAX;

  bool serves(std::string_view url) const noexcept override { return url.substr(0, 4) == "mem:"; }
  bool over_network(std::string_view) const noexcept override { return false; }
  task<part> read(shard, std::string, std::uint64_t offset, std::size_t length, slab_pool) const override {
    part p;
    p.etag = ++requests > changes_after ? "\"v2\"" : etag;
    p.total = content.size();
    p.data = bytes::copy(std::string_view(content).substr(static_cast<std::size_t>(offset), length));
    co_return std::move(p);
  }
};

/// After the last item of the first epoch it waits until the epoch's batches were taken, or notes that they were not.
class gate {
 public:
  std::atomic<bool> taken{false};
  std::atomic<bool> late{false};

  static async_generator<sample> wait(async_generator<sample> in, gate& self) {
    while (std::optional<sample> s = co_await in.next()) {
      const bool last = s->mark.last;
      co_yield give(*s);
      if (!last) continue;
      for (int ms = 0; !self.taken && !self.late; ++ms) {
        co_await sleep_for(std::chrono::milliseconds(1));
        self.late = ms == 3000;
      }
    }
  }
};

}  // namespace

TEST_CASE("groups come in another order in every epoch") {
  const auto all =
      std::make_shared<const shard_counts>(std::vector<std::uint64_t>{120}, std::vector<std::uint64_t>(40, 3));
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
    const sample_order o(all, 7, epoch, {.tracks = 1, .groups = true});
    std::vector<std::uint64_t> groups;
    for (std::uint64_t g = 0; g < o.size(); g += 3) groups.push_back(o.at(g).ordinal / 3);
    orders.insert(std::move(groups));
  }
  CHECK(orders.size() == 5);
}

TEST_CASE("with .equal the source does not pad: fill() does, after what makes many items of one") {
  const tar_dataset data({10, 11, 12, 13}, 100);
  for (std::uint32_t r = 0; r < 2; ++r) {
    test::thread_gather gather(2);
    const equal_batches equal(4, uneven::pad, gather.group(r));
    test::settings o{.seed = 1, .epochs = 2, .batch = 4, .rank = {.index = r, .world_size = 2}, .tracks = 12};
    CHECK(test::delivered_by(data.open(o), 4).padding == 2);
    o.equal = &equal;
    CHECK(test::delivered_by(data.open(o), 4).padding == 0);
  }
}

TEST_CASE("ranks compare what was chosen of a dataset, before there is an index") {
  const tar_dataset data({10, 11}, 100);
  test::temporary_folder at;
  const dataset whole(std::shared_ptr<const storage>(data.store), "mem:", {.index = at.file("an.index")});
  using choices = std::vector<dataset>;
  const choices alike{whole.subset(0, 20), whole.subset(0, 20)};
  const choices others[] = {{whole.subset(0, 20), whole.subset(0, 19)},
                            {whole.subset(0, 20), whole},
                            {whole.subset({1, 2}), whole.subset({1, 3})},
                            {whole.take(3), whole.take(4)},
                            {whole.weighted(std::vector<float>(21, 1.0F), {.samples = 5}),
                             whole.weighted(std::vector<float>(21, 1.0F), {.samples = 6})}};
  const auto said = [](const choices& of) {
    test::thread_gather gather(2);
    return test::on_ranks(2, [&](std::size_t r) {
      epochs_options o{.seed = 1, .batch = 4};
      const rank_group group = gather.group(r);
      o.ranks = group;
      const stream<sample> begun = epochs(of[r], o);
    });
  };
  CHECK(said(alike) == names(2));
  for (const choices& of : others) {
    const names errors = said(of);
    CHECK_THAT(errors[0], Contains("the ranks do not agree: the dataset is"));
    CHECK(errors[1] == errors[0]);
  }
}

TEST_CASE("each copy of a row that is drawn by weights has random numbers of its own, in memory too") {
  const dataset rows(arrays({{"x", array(std::vector<std::int32_t>(5, 1), {5})}}));
  std::set<std::uint64_t> drawn;
  std::size_t copies = 0;
  for (const sample& s : taken(epochs(rows.weighted({1, 0, 3, 0, 9}, {.samples = 60}), {.seed = 7}))) {
    drawn.insert(s.random(1).next());
    ++copies;
  }
  CHECK(copies == 60);
  CHECK(drawn.size() == 60);
}

TEST_CASE("of a part that is spread thin no more is read than twice what is used, and a gap for each request") {
  const tar_dataset data({200}, 3000);
  const dataset whole(std::shared_ptr<const storage>(data.store), data.indexes, {.prefix = "mem:", .slice = 200});
  const dataset some = whole.subset([](const indexed_sample& s) { return s.number % 20 == 0; });
  epochs_options o{.seed = 1, .tracks = 1};
  o.gap = 90'000;  // more than each of the gaps
  CHECK(taken(epochs(some, o)).size() == 10);
  INFO(data.store->requests << " requests, " << data.store->read_bytes << " bytes of " << some.bytes().value());
  CHECK(data.store->requests < 10);
  CHECK(data.store->read_bytes <= 2 * some.bytes().value() + data.store->requests * o.gap);
}

TEST_CASE("a shard that changes between two ranges is an error, where the store ignores the version asked for, too") {
  const tar_dataset data({60}, 300);
  for (const bool index_knows : {true, false}) {
    INFO("the index has the version: " << index_knows);
    const auto store = std::make_shared<careless_store>();
    store->content = data.store->objects.begin()->second;
    if (index_knows) store->etag = "\"v1\"";
    testing::virtual_loop loop;
    std::vector<shard_index> one;
    one.push_back(block_on(loop, index_shard(std::shared_ptr<const storage>(store), shard("mem:a.tar"), "a.tar")));
    const auto indexes = std::make_shared<const index_set>(std::move(one));
    store->etag = "\"v1\"";
    const dataset of(std::shared_ptr<const storage>(store), indexes, {.prefix = "mem:", .slice = 4});
    epochs_options o{.seed = 1, .tracks = 4};
    o.gap = 0;
    CHECK(taken(epochs(of, o)).size() == 60);
    store->changes_after = store->requests + 5;
    CHECK_THROWS_WITH(taken(epochs(of, o)), Contains("another version of this shard") && Contains("\"v2\""));
  }
}

TEST_CASE("a state names the shards that lost most, and counts the others") {
  std::vector<std::size_t> counts;
  for (std::size_t n = 1; n <= 40; ++n) counts.push_back(n);
  const tar_dataset data(counts, 20);
  for (std::size_t n = 0; n < 40; ++n) {
    data.store->bad["mem:" + std::to_string(100 + n) + ".tar"] = test::harm::missing;
  }
  test::settings o{.seed = 1, .epochs = 2, .batch = 4, .tracks = 4, .slice = 4};
  o.failures = {.then = on_failure::skip, .report = false};
  const epoch_state at = epoch_state::parse(test::delivered_by(data.open(o), 4, 205).state);
  CHECK(at.epoch == 1);
  CHECK(at.holes.size() == 32);
  CHECK(at.holes.begin()->first == 8);  // of 9 samples
  CHECK(at.other_holes == 36);          // 1 and so on to 8
}

TEST_CASE("a range, a list and a plan of many samples are known by counts: rows that they do not need are not read") {
  const tar_dataset data({300, 20, 0, 7}, 100);
  test::temporary_folder at;
  const std::string file = at.file("train.index");
  std::string text;
  write_indexes(*data.indexes, text);
  const std::size_t rows_of_others = static_cast<std::size_t>(
      (*data.indexes)[1].file_bytes() + (*data.indexes)[2].file_bytes() + (*data.indexes)[3].file_bytes());
  text[text.size() - rows_of_others - 4 - 16 * 900 + 16 * 290] ^= 1;  // of sample 290 of the first shard
  std::ofstream(file, std::ios::binary) << text;
  const std::shared_ptr<const storage> store = data.store;
  const dataset whole(store, "mem:", {.index = file, .make_index = false});
  CHECK(whole.samples() == 327U);
  CHECK_THROWS_WITH(whole.subset([](const indexed_sample&) { return true; }).samples(), Contains("wrong checksum"));
  CHECK(whole.take(300).bytes() == (*data.indexes)[0].sample_bytes());
  CHECK(whole.subset(0, 310).samples() == 310U);
  CHECK(whole.subset({321, 301}).samples() == 2U);
  const std::shared_ptr<const index_set> read = detail::listed_index::read(file);
  CHECK_THROWS_WITH(detail::largest_slice(*read, 4), Contains("wrong checksum"));
  std::uint64_t mean = 0;
  for (const std::size_t i : {0U, 1U, 3U}) {
    mean = std::max(mean, (*data.indexes)[i].sample_bytes() / (*data.indexes)[i].samples() + 1);
  }
  CHECK(detail::largest_slice(*read, 4, 326) == 4 * mean);

  // More than 2^18 samples, of which one is long.
  std::string lines = std::string(1000, 'x') + '\n';
  for (int i = 0; i < 1 << 18; ++i) lines += "x\n";
  std::vector<shard_index> one;
  one.push_back(test::scanned(detail::line_scanner(*line_shards(), "x", shard("mem:x"), 10'000), lines));
  const index_set many(std::move(one));
  REQUIRE(many.samples() == (1 << 18) + 1);
  CHECK(detail::largest_slice(many, 4) == 4 * (many.sample_bytes() / many.samples() + 1));
}

TEST_CASE("what ranges and lists take has the same bytes as by a function") {
  const tar_dataset data({100, 1, 0, 64, 70}, 100);
  const dataset whole(std::shared_ptr<const storage>(data.store), data.indexes, {.prefix = "mem:"});
  rng random(7);
  for (int c = 0; c < 60; ++c) {
    const std::uint64_t begin = random.below(235);
    const std::uint64_t end = begin + 1 + random.below(235 - begin);
    INFO(begin << " to " << end);
    const auto taken_by = [=](const indexed_sample& s) { return s.number >= begin && s.number < end; };
    std::vector<std::uint64_t> list;
    for (std::uint64_t n = begin; n < end; ++n) list.push_back(n);
    const dataset model = whole.subset(taken_by);
    for (const dataset& one : {whole.subset(begin, end), whole.subset(list)}) {
      CHECK(one.samples() == model.samples());
      CHECK(one.bytes() == model.bytes());
      CHECK(one.plan({.batch = 4, .tracks = 4}) == model.plan({.batch = 4, .tracks = 4}));
    }
  }
}

TEST_CASE("a batch that an epoch ends is there before the next epoch begins") {
  const tar_dataset data({6}, 100);
  runtime rt({.log = [](const log_record&) {}});
  const batch_pool pool(batch_layout(4, {{"size", dtype::i64}}));
  test::settings o{.seed = 1, .epochs = 2, .tracks = 2, .slice = 4};
  o.pad = false;
  const auto check = [](auto run, gate& g) {
    CHECK(run.next().value().size() == 4);
    CHECK(run.next().value().size() == 2);
    g.taken = true;
    CHECK_FALSE(g.late);
    std::size_t rest = 0;
    for (const auto& b : run) rest += b.size();
    CHECK(rest == 6);
  };
  gate plain, filled;
  const auto after = [](gate& g) { return [&g](async_generator<sample> in) { return gate::wait(std::move(in), g); }; };
  check(rt.run(data.open(o) | after(plain) | batch(4)), plain);
  check(rt.run(data.open(o) | after(filled) | fill_batches(pool, [](const sample&, const batch_row&) {})), filled);
}
