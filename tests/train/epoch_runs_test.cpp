// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/dataset.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <millrace/device/collate.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/train/shard_epochs.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::tar_dataset;

namespace {

using keys = std::vector<std::string>;

std::string key_of(const sample& s) { return s.weight() == 0 ? std::string("-") : s.key; }

/// The canonical order on one rank, in batches of `size`, padding included, from batch `first` on.
std::vector<keys> batches_of(const tar_dataset& data, std::uint64_t seed, std::uint64_t epochs, std::size_t size,
                             std::size_t first = 0) {
  std::vector<keys> all;
  for (std::uint64_t e = 0; e < epochs; ++e) {
    const keys order = data.order(seed, e, {.tracks = 12, .slice = 4});
    for (std::size_t g = 0; g < order.size(); ++g) {
      if (g % size == 0) all.emplace_back();
      all.back().push_back(order[g]);
    }
    all.back().resize(size, "-");
  }
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first));
  return all;
}

test::settings small(std::uint64_t seed, std::uint64_t epochs, std::size_t batch) {
  test::settings o{.seed = seed, .epochs = epochs, .batch = batch};
  o.tracks = 12;
  o.slice = 4;
  return o;
}

template <class Run>
std::string sentence(const Run& run) {
  try {
    return run.state();
  } catch (const usage_error& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("a run's state is after the batch in hand, whatever was prefetched, and a resume goes on there") {
  const tar_dataset data({17, 20, 1}, 400);  // 38: ten batches of four
  runtime rt;
  const std::vector<keys> wanted = batches_of(data, 3, 2, 4);
  for (const std::size_t stop : {0U, 1U, 9U, 10U, 13U, 20U}) {
    std::vector<keys> got;
    std::string state;
    {
      auto run = rt.run(data.open(small(3, 2, 4)) | batch(4), {.prefetch = 5});
      CHECK(run.batches() == 10);
      CHECK(epoch_state::parse(run.state()).position == 0);
      if (stop != 0) {
        for (const std::vector<sample>& b : run) {
          got.emplace_back();
          for (const sample& s : b) got.back().push_back(key_of(s));
          if (got.size() == stop) break;
        }
      }
      state = run.state();
    }
    CHECK(epoch_state::parse(state).epoch == stop / 10);
    CHECK(epoch_state::parse(state).position == stop % 10 * 4);
    test::settings o = small(3, 2, 4);
    o.resume = state;
    auto run = rt.run(data.open(o) | batch(4));
    CHECK(run.state() == state);
    while (auto b = run.next()) {
      got.emplace_back();
      for (const sample& s : *b) got.back().push_back(key_of(s));
    }
    CHECK(got == wanted);
    CHECK(epoch_state::parse(run.state()).epoch == 2);
  }
}

TEST_CASE("a run says how far the training is and how long it will take, after a resume too") {
  const tar_dataset data({17, 20, 1}, 400);  // 38: ten batches of four
  class reported {
   public:
    int calls = 0;
    training_place last;
  } seen;
  run_options options;
  const auto note = [&](const run_stats& so_far) {
    ++seen.calls;
    seen.last = so_far.place;
  };
  options.report = note;
  runtime rt;
  std::string state;
  {
    auto run = rt.run(data.open(small(3, 2, 4)) | batch(4), options);
    CHECK(run.stats().progress().find("epoch") == std::string::npos);
    for (std::uint64_t n = 0; run.next(); ++n) {
      const run_stats now = run.stats();
      CHECK(now.place.epoch == n / 10);
      CHECK(now.place.epochs == 2);
      CHECK(now.place.batch == n % 10 + 1);
      CHECK(now.place.batches == 10);
      CHECK(now.placed == n);
      if (n == 13) state = run.state();
    }
  }
  CHECK(seen.calls >= 1);
  CHECK(seen.last.taken() == 20);
  CHECK(seen.last.all() == 20);
  test::settings o = small(3, 2, 4);
  o.resume = state;
  auto run = rt.run(data.open(o) | batch(4));
  run.next();
  CHECK(run.stats().progress().find("epoch 2 of 2, batch 5 of 10: 1 batches, 4 samples") == 0);
  // Samples are of a batch that has begun.
  auto samples = rt.run(data.open(small(3, millrace::endless, 4)));
  for (int i = 0; i < 5; ++i) samples.next();
  CHECK(samples.stats().place.batch == 1);
  CHECK(samples.stats().place.epochs == 0);
}

TEST_CASE("what is left of a training is at the rate since its first item") {
  run_stats s;
  s.seconds = 11;
  s.first_after = 1;
  s.items = 6;
  s.samples = 24;
  s.place.epochs = 2;
  s.place.batch = 6;
  s.place.batches = 10;
  CHECK(s.left() < 0);
  s.placed = 5;
  CHECK(s.left() == Approx(28));
  CHECK(s.progress() ==
        "epoch 1 of 2, batch 6 of 10: 6 batches, 24 samples (2/s), waited 0.0%, 28 s left");
  s.place.epochs = 0;
  s.place.batches = 1000;
  CHECK(s.progress() ==
        "epoch 1, batch 6 of 1000: 6 batches, 24 samples (2/s), waited 0.0%, 33 min left of the epoch");
}

TEST_CASE("batches on a device know their epoch, their weights and the state after them") {
  const tar_dataset data({17, 20, 1}, 400);
  const batch_layout layout(4, {{"size", dtype::i64}, {"weight", dtype::f32}});
  const batch_pool pool(layout);
  const auto write = [](const sample& s, const batch_row& row) {
    row.set("size", static_cast<std::int64_t>(s["txt"].size()));
    row.set("weight", 1.0F);
    row.key(s.key);
  };
  runtime rt;
  const std::vector<keys> wanted = batches_of(data, 8, 3, 4);
  auto run = rt.run(data.open(small(8, 3, 4)) | fill_batches(pool, write) | to_device(host_device(), {.slots = 2}));
  std::size_t n = 0;
  for (device_batch& b : run) {
    b.synchronize();
    REQUIRE(b.size() == 4);
    CHECK(b.mark().epoch == n / 10);
    CHECK(b.mark().last == (n % 10 == 9));
    for (std::size_t i = 0; i < 4; ++i) {
      const bool padding = wanted[n][i] == "-";
      CHECK(b.weights()[i] == (padding ? 0.0F : 1.0F));
      CHECK(b.host_field("weight").values<float>()[i] == b.weights()[i]);
      CHECK(b.keys()[i] == (padding ? "" : wanted[n][i]));
      CHECK(b.host_field("size").values<std::int64_t>()[i] == std::int64_t(padding ? 0 : wanted[n][i].size()));
    }
    ++n;
    const epoch_state at = epoch_state::parse(run.state());
    CHECK(at.epoch == n / 10);
    CHECK(at.position == n % 10 * 4);
  }
  CHECK(n == 30);
}

TEST_CASE("a batch never holds samples of two epochs, padded or not, and a shuffle's window neither") {
  const tar_dataset data({17, 20, 1}, 400);
  test::settings o = small(8, 3, 4);
  o.pad = false;
  const batch_pool pool(batch_layout(7, {{"size", dtype::i64}}));
  const auto write = [](const sample& s, const batch_row& row) {
    row.set("size", static_cast<std::int64_t>(s.key.size()));
  };
  runtime rt;
  std::vector<std::size_t> sizes;
  for (const std::vector<sample>& b : rt.run(data.open(o) | batch(7))) {
    sizes.push_back(b.size());
    for (const sample& s : b) CHECK(s.mark.epoch == b.front().mark.epoch);
  }
  CHECK(sizes == std::vector<std::size_t>{7, 7, 7, 7, 7, 3, 7, 7, 7, 7, 7, 3, 7, 7, 7, 7, 7, 3});
  std::vector<std::size_t> filled;
  for (const host_batch& b : rt.run(data.open(o) | fill_batches(pool, write))) {
    filled.push_back(b.size());
    CHECK(b.mark().last == (b.size() == 3));
  }
  CHECK(filled == sizes);
  std::vector<std::size_t> shuffled(3);
  std::uint64_t epoch = 0;
  for (const sample& s : rt.run(data.open(o) | shuffle({.window = 16}))) {
    CHECK(s.mark.epoch >= epoch);
    epoch = s.mark.epoch;
    ++shuffled.at(static_cast<std::size_t>(epoch));
  }
  CHECK(shuffled == std::vector<std::size_t>{38, 38, 38});
  // Also where the last sample of an epoch does not come, by a stage of the program's own.
  const auto without_last = [](async_generator<sample> in) -> async_generator<sample> {
    while (std::optional<sample> s = co_await in.next()) {
      if (!s->mark.last) co_yield give(*s);
    }
  };
  sizes.clear();
  for (const std::vector<sample>& b : rt.run(data.open(o) | without_last | batch(7))) sizes.push_back(b.size());
  CHECK(sizes == std::vector<std::size_t>{7, 7, 7, 7, 7, 2, 7, 7, 7, 7, 7, 2, 7, 7, 7, 7, 7, 2});
  filled.clear();
  for (const host_batch& b : rt.run(data.open(o) | without_last | fill_batches(pool, write)))
    filled.push_back(b.size());
  CHECK(filled == sizes);
}

TEST_CASE("after epochs a shuffle has the order of each epoch's seed and number, as if the epoch stood alone") {
  const tar_dataset data({17, 20, 1}, 100);
  test::settings o = small(8, 3, 4);
  o.pad = false;
  runtime rt;
  keys together;
  for (const sample& s : rt.run(data.open(o) | shuffle({.window = 16}))) together.push_back(s.key);
  keys alone;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    test::settings one = small(8, 1, 4);
    one.pad = false;
    one.first_epoch = epoch;
    // Of items that do not say where they stand.
    for (const std::string& k :
         rt.run(data.open(one) | map(key_of) | shuffle({.window = 16, .seed = 8, .epoch = epoch}))) {
      alone.push_back(k);
    }
  }
  CHECK(together == alone);
}

TEST_CASE("where there is no state, a sentence says why") {
  const tar_dataset data({17, 20, 1}, 400);
  runtime rt;
  auto plain = rt.run(from_range(std::vector<int>{1, 2}));
  CHECK_THAT(sentence(plain), Contains("does not begin with epochs()"));
  CHECK_FALSE(plain.batches());

  test::settings bare = small(1, 1, 1);
  bare.pad = false;
  auto mapped = rt.run(data.open(bare) | map([](const sample& s) { return s.key.size(); }));
  CHECK_THAT(sentence(mapped), Contains("mark_of()"));
  CHECK(mapped.next());
  CHECK_THAT(sentence(mapped), Contains("mark_of()"));

  auto shuffled = rt.run(data.open(small(1, 1, 4)) | shuffle({.window = 30}) | batch(4));
  CHECK(shuffled.next());
  CHECK_THAT(sentence(shuffled), Contains("changes the order"));

  test::settings two = small(1, 1, 4);
  two.rank = {.index = 0, .world_size = 2};
  auto uneven = rt.run(data.open(two) | batch(2));
  CHECK(uneven.next());
  CHECK_THAT(sentence(uneven), Contains("ends inside a step"));

  // One rank may take batches of any size.
  auto alone = rt.run(data.open(small(1, 1, 1)) | batch(3));
  CHECK(alone.next());
  CHECK_THAT(sentence(alone), Contains("\"position\":3"));
}

TEST_CASE("without an index shards are dealt anew in every epoch, and samples, windows and batches keep to theirs") {
  const tar_dataset data({17, 20, 1, 9, 30}, 400);
  const std::shared_ptr<const storage> store = data.store;
  runtime rt;
  std::multiset<std::string> all;  // epoch and key, of both ranks
  std::vector<keys> orders(3);     // of rank 0
  for (const std::uint32_t index : {0U, 1U}) {
    shard_epochs_options o{.seed = 4, .epochs = 3, .first_epoch = 2};
    o.rank = {.index = index, .world_size = 2};
    o.uneven = true;
    auto samples = shard_epochs(shards("mem:10{0..4}.tar"), o) | fetch(store) | untar_plain() |
                   group_samples() | shuffle({.window = 16}) | batch(6);
    std::uint64_t epoch = 2;
    auto run = rt.run(std::move(samples));
    for (const std::vector<sample>& b : run) {
      CHECK(b.front().mark.epoch >= epoch);
      epoch = b.front().mark.epoch;
      for (const sample& s : b) {
        CHECK(s.mark.epoch == epoch);
        CHECK(s.from.from->seed == 4);
        all.insert(std::to_string(epoch) + " " + s.key);
        if (index == 0) orders.at(static_cast<std::size_t>(epoch) - 2).push_back(s.key);
      }
    }
    CHECK(epoch == 4);
    CHECK_THAT(sentence(run), Contains("does not begin with epochs()"));
  }
  CHECK(all.size() == 3 * 77);
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == 3 * 77);
  CHECK(orders[0] != orders[1]);
  auto none = rt.run(shard_epochs(from_range(std::vector<shard>()), {}));
  CHECK_THROWS_AS(none.next(), configuration_error);
  auto few = rt.run(shard_epochs(shards("mem:100.tar"),
                           {.rank = {.index = 0, .world_size = 2}, .uneven = true}));
  CHECK_THROWS_AS(few.next(), configuration_error);
}

TEST_CASE("epochs are read from an S3 server by several loops, in the same order as by one") {
  const tar_dataset data({17, 20, 1}, 40000);
  s3_server::background server;
  const std::string endpoint = server.endpoint();
  s3::config_options how;
  how.endpoint = endpoint;
  how.region = "us-east-1";
  const s3::client client(s3::config(how), s3::credentials("test-key", "test-secret"));
  runtime rt({.loops = 1});
  std::vector<shard_index> made;
  for (const auto& [url, content] : data.store->objects) {
    const auto loop = make_event_loop();
    server.put("corpus", "train/" + url.substr(4), content);
    made.push_back(block_on(
        *loop, index_shard(s3::as_storage(client), shard("s3://corpus/train/" + url.substr(4)), url.substr(4))));
  }
  const auto indexes = std::make_shared<const index_set>(std::move(made));
  test::settings o = small(3, 2, 4);
  o.prefix = "s3://corpus/train/";
  o.part = 64 * KiB;
  for (const unsigned loops : {1U, 3U}) {
    runtime several({.loops = loops});
    std::vector<keys> got;
    for (const std::vector<sample>& b : several.run(test::train_on(indexes, s3::as_storage(client), o) | batch(4))) {
      got.emplace_back();
      for (const sample& s : b) got.back().push_back(key_of(s));
    }
    CHECK(got == batches_of(data, 3, 2, 4));
  }
  // Another object under the name.
  server.put("corpus", "train/102.tar", data.store->objects["mem:101.tar"]);
  auto run = rt.run(test::train_on(indexes, s3::as_storage(client), o) | batch(4));
  std::string what;
  try {
    while (run.next()) {
    }
  } catch (const stale_index_error& e) {
    what = e.what();
  }
  CHECK_THAT(what, Contains("s3://corpus/train/102.tar at byte ") &&
                       Contains("the index \"102.tar\" is of another version of this shard"));
}
