// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/dataset.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/equal_batches.hpp>
#include <millrace/train/rank_group.hpp>
#include <millrace/train/tracks_advice.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::delivered;
using test::delivered_by;
using test::tar_dataset;

namespace {

using test::failure_of;

std::shared_ptr<const storage> store_of(const tar_dataset& data) { return data.store; }

std::vector<shard> list_of(const tar_dataset& data) {
  std::vector<shard> all;
  for (const auto& [url, content] : data.store->objects) all.emplace_back(url, content.size(), data.store->etag);
  return all;
}

constexpr epochs_options small{.seed = 3, .epochs = 2, .batch = 4, .tracks = 12};

using keys = std::vector<std::pair<std::uint64_t, std::string>>;

}  // namespace

TEST_CASE("a dataset by prefix, by shards, by a stream of them and by given indexes is the same training") {
  const tar_dataset data({17, 20, 1, 9}, 400);
  test::temporary_folder at;
  const dataset_options how{.index = at.file("train.index"), .slice = 4};
  const dataset given(store_of(data), data.indexes, {.prefix = "mem:", .slice = 4});
  CHECK(given.samples() == 47U);
  CHECK(given.shards() == 4U);
  CHECK(given.bytes() == data.indexes->sample_bytes());
  const delivered wanted = delivered_by(epochs(given, small), 4);
  CHECK(wanted.samples.size() == 94);

  const dataset by_prefix(store_of(data), "mem:", how);
  CHECK(by_prefix.samples() == std::nullopt);  // its index is made by the first run
  CHECK(by_prefix.plan().empty());
  CHECK(by_prefix.exact());
  CHECK(by_prefix.elastic());
  CHECK(delivered_by(epochs(by_prefix, small), 4).samples == wanted.samples);
  CHECK(by_prefix.samples() == 47U);
  CHECK_THAT(by_prefix.plan(small), Contains("batches"));

  const dataset again(store_of(data), "mem:", how);  // the file is there
  CHECK(again.samples() == 47U);
  CHECK(epochs(again, small).position()->batches() == 12U);  // before anything is read

  dataset_options listed = how;
  listed.prefix = "mem:";
  const dataset by_shards(store_of(data), list_of(data), listed);
  const dataset by_stream(store_of(data), from_range(list_of(data)), listed);
  for (int run = 0; run < 2; ++run) {  // the list of a stream is kept
    const delivered a = delivered_by(epochs(by_shards, small), 4);
    const delivered b = delivered_by(epochs(by_stream, small), 4);
    CHECK(a.samples == wanted.samples);
    CHECK(b.samples == wanted.samples);
    CHECK(a.state == wanted.state);
    CHECK(b.state == wanted.state);
  }
}

TEST_CASE("the state of a training is owned, and another way to give the data goes on with it") {
  const tar_dataset data({17, 20, 1, 9}, 400);
  test::temporary_folder at;
  const dataset given(store_of(data), data.indexes, {.prefix = "mem:", .slice = 4});
  const dataset by_prefix(store_of(data), "mem:", {.index = at.file("train.index"), .slice = 4});
  const delivered whole = delivered_by(epochs(given, small), 4);
  delivered first = delivered_by(epochs(given, small), 4, 5);
  stream<sample> rest = epochs(by_prefix, small, std::string(first.state));
  const delivered second = delivered_by(std::move(rest), 4);
  keys all = first.samples;
  all.insert(all.end(), second.samples.begin(), second.samples.end());
  CHECK(all == whole.samples);
}

TEST_CASE("the plan of a dataset asks no other rank, and leaves .equal to the run") {
  const tar_dataset data({17, 20, 1, 9}, 400);
  const dataset given(store_of(data), data.indexes, {.prefix = "mem:", .slice = 4});
  test::thread_gather gather(2);
  const rank_group mine = gather.group(1);  // rank 0 is not there
  const equal_batches equal(4, uneven::pad, mine);
  epochs_options options = small;
  options.ranks = mine;
  options.equal = &equal;
  CHECK_THAT(given.plan(options), Contains("on each of 2 ranks"));
  CHECK_THAT(given.plan(options), Contains("on each of 2 ranks"));
  CHECK(gather.gathers() == 0);
  options.rank = {.index = 0, .world_size = 2};
  CHECK_THAT(failure_of([&] { static_cast<void>(given.plan(options)); }), Contains("leave .rank out"));
}

TEST_CASE("a dataset without an index is a stream: it knows no samples, and its state is one rank's") {
  const tar_dataset data({17, 20, 1, 9}, 400);
  const dataset streamed(store_of(data), "mem:", {.shards = 2, .window = 8});
  CHECK(!streamed.exact());
  CHECK(!streamed.elastic());
  CHECK(streamed.samples() == std::nullopt);
  epochs_options o = small;
  o.tracks = 0;
  const delivered whole = delivered_by(epochs(streamed, o), 4);
  CHECK(whole.samples.size() == 94);
  const delivered first = delivered_by(epochs(streamed, o), 4, 7);
  const delivered second = delivered_by(epochs(streamed, o, first.state), 4);
  keys all = first.samples;
  all.insert(all.end(), second.samples.begin(), second.samples.end());
  CHECK(all == whole.samples);
  // What it cannot promise is refused by name.
  o.rank.world_size = 2;
  CHECK_THAT(failure_of([&] { static_cast<void>(epochs(streamed, o)); }),
             Contains("without an index the ranks have unequally many"));
  CHECK_THAT(failure_of([&] { static_cast<void>(epochs(streamed, small)); }),
             Contains(".tracks is for a dataset with an index"));
}

TEST_CASE("datasets mix by weights, whether their indexes were given or are read when the run begins") {
  const auto store = std::make_shared<test::dataset_store>(1);
  const tar_dataset web({30, 0, 18, 12}, 300, 1, "web/", store);
  const tar_dataset books({5, 20}, 300, 2, "books/", store);
  const std::shared_ptr<const storage> from = store;
  test::temporary_folder at;
  const dataset given({{dataset(from, web.indexes, {.prefix = "mem:web/"}), 3},
                       {dataset(from, books.indexes, {.prefix = "mem:books/"}), 1}},
                      {.until = mix_until::first_end});
  CHECK(given.samples() == 85U);
  CHECK(given.exact());
  const dataset listed({{dataset(from, "mem:web/", {.index = at.file("web.index")}), 3},
                        {dataset(from, "mem:books/", {.index = at.file("books.index")}), 1}},
                       {.until = mix_until::first_end});
  epochs_options o = small;
  o.tracks = 40;
  const delivered whole = delivered_by(epochs(given, o), 4);
  CHECK(whole.samples.size() > 60);
  CHECK(listed.samples() == std::nullopt);
  for (int run = 0; run < 2; ++run) {  // the second one knows the indexes
    const delivered first = delivered_by(epochs(listed, o), 4, 6);
    const delivered second = delivered_by(epochs(listed, o, first.state), 4);
    keys all = first.samples;
    all.insert(all.end(), second.samples.begin(), second.samples.end());
    CHECK(all == whole.samples);
    CHECK(second.state == whole.state);
  }
  CHECK(listed.samples() == 85U);
  CHECK(listed.plan(o) == given.plan(o));
}

TEST_CASE("what a dataset cannot be is refused by name") {
  const tar_dataset data({7, 3}, 100);
  const std::shared_ptr<const storage> from = data.store;
  const auto refused = [&](auto&&... given) {
    return failure_of([&] { dataset made(from, std::forward<decltype(given)>(given)...); });
  };
  CHECK_THAT(refused("s3://other/", dataset_options{}), Contains("s3://other/: dataset: the store does not serve"));
  CHECK_THAT(refused("", dataset_options{}), Contains("the prefix is empty"));
  CHECK_THAT(refused("mem:", dataset_options{.slice = 4}), Contains("for data with an index: give .index"));
  CHECK_THAT(refused("mem:", dataset_options{.index = "x", .window = 4}), Contains("for data without an index"));
  CHECK_THAT(refused("mem:", dataset_options{.window = 0}), Contains("must not be 0"));
  CHECK_THAT(refused(data.indexes, dataset_options{.index = "x"}), Contains("whose indexes are given"));

  const dataset indexed(from, data.indexes, {.prefix = "mem:"});
  const dataset streamed(from, "mem:");
  const auto mix = [&](std::vector<weighted_dataset> members) {
    return failure_of([&] { dataset made(std::move(members)); });
  };
  CHECK(mix({{indexed, 1}, {indexed, 2}}) == "no error");
  CHECK_THAT(mix({}), Contains("no members"));
  CHECK_THAT(mix({{indexed, 1}, {streamed, 1}}), Contains("member 1 (mem:) of the mix has no index"));
  CHECK_THAT(mix({{indexed, 0}}), Contains("member 0 (mem:) of the mix has the weight 0"));
  CHECK_THAT(mix({{dataset({{indexed, 1}}), 1}}), Contains("is a mix itself"));
  CHECK_THAT(mix({{dataset(from, data.indexes, {.prefix = "mem:", .slice = 2}), 1}}), Contains("a .slice of its own"));
  const auto other = std::make_shared<test::dataset_store>(1);
  other->host_name = "elsewhere";
  CHECK_THAT(mix({{indexed, 1}, {dataset(std::shared_ptr<const storage>(other), data.indexes, {.prefix = "mem:"}), 1}}),
             Contains("lies in another store than member 0"));
}

TEST_CASE("batch() without a number takes that of epochs(), through any stages between them") {
  const tar_dataset data({7, 20, 2}, 100);
  const dataset train(store_of(data), data.indexes, {.prefix = "mem:"});
  const auto same = [](sample s) { return s; };
  const auto sizes = [&](auto stages) {
    runtime rt;
    std::vector<std::size_t> all;
    auto run = rt.run(epochs(train, {.batch = 8}) | std::move(stages));
    for (const std::vector<sample>& b : run) all.push_back(b.size());
    return all;
  };
  const std::vector<std::size_t> eights(4, 8);  // the last one is filled up
  CHECK(sizes(batch()) == eights);
  CHECK(sizes(map(same) | batch()) == eights);
  CHECK(sizes(map(same) | (map(same) | named("mine", batch({.last = last_batch::keep})))) == eights);
  CHECK_THAT(failure_of([&] { sizes(batch(12)); }), Contains("batches of 12 do not fit steps of 8"));
  CHECK_THAT(failure_of([&] { static_cast<void>(from_range(std::vector<int>{1}) | batch()); }),
             Contains("no size is given"));
}

namespace {

stream<std::vector<sample>> batches_inside(stream<sample> in) {
  return std::move(in) | map([](sample s) { return s; }) | batch();
}

}  // namespace

TEST_CASE("a stage that is a function of a stream knows the size of a batch") {
  const tar_dataset data({7, 20, 2}, 100);
  const dataset train(store_of(data), data.indexes, {.prefix = "mem:"});
  const auto sizes = [&](auto stage) {
    runtime rt;
    std::vector<std::size_t> all;
    auto run = rt.run(epochs(train, {.batch = 8}) | std::move(stage));
    for (const std::vector<sample>& b : run) all.push_back(b.size());
    return all;
  };
  const std::vector<std::size_t> eights(4, 8);
  CHECK(sizes(&batches_inside) == eights);
  CHECK(sizes(named("mine", &batches_inside)) == eights);
  CHECK(sizes(map([](sample s) { return s; }) | named("mine", &batches_inside)) == eights);
  std::size_t more = 0;  // a lambda with a capture, by &&
  CHECK(sizes([more](stream<sample>&& in) { return std::move(in) | batch({.bytes = more}); }) == eights);
}

TEST_CASE("without .batch there are samples, and batch() wants a number; another one than .batch is refused") {
  const tar_dataset data({7, 20, 2}, 100);
  const dataset train(store_of(data), data.indexes, {.prefix = "mem:"});
  CHECK(delivered_by(epochs(train, {}), 1).samples.size() == 29);
  CHECK(epochs(train, {.rank = {.index = 1, .world_size = 2}}).position()->batches() == 15U);
  CHECK_THAT(train.plan({}), Contains("batches"));
  CHECK_THAT(failure_of([&] { static_cast<void>(epochs(train, {}) | batch()); }),
             Contains("no size is given: write batch(256), or say it in epochs_options::batch"));
  const auto run_of = [&](const epochs_options& o, std::size_t size) {
    return failure_of([&] {
      runtime rt;
      auto run = rt.run(epochs(train, o) | batch(size));
    });
  };
  CHECK(run_of({}, 12) == "no error");
  CHECK_THAT(run_of({.batch = 8}, 12), Contains("batches of 12 do not fit steps of 8"));
  CHECK_THAT(run_of({.rank = {.index = 1, .world_size = 2}}, 12), Contains("batches of 12 do not fit steps of 1"));
  // Without an index the steps are those of .equal.
  const equal_batches equal(4, uneven::pad, rank_group());
  const dataset streamed(store_of(data), "mem:");
  CHECK(epochs(streamed, {.equal = &equal}).declared_batch() == 4);
}

TEST_CASE("a training of 0 epochs is refused by name, and not one that reads nothing") {
  const tar_dataset data({3, 4}, 100);
  for (const dataset& train :
       {dataset(store_of(data), data.indexes, {.prefix = "mem:"}), dataset(store_of(data), "mem:")}) {
    CHECK_THAT(failure_of([&] {
                 runtime rt;
                 auto run = rt.run(epochs(train, {.epochs = 0}));
               }),
               Contains("epochs: .epochs is 0"));
  }
}

TEST_CASE("a training may be endless") {
  const tar_dataset data({3, 4}, 100);
  const dataset train(store_of(data), data.indexes, {.prefix = "mem:"});
  const delivered some = delivered_by(epochs(train, {.epochs = endless, .first_epoch = 5, .batch = 7}), 7, 9);
  CHECK(some.samples.size() == 63);
  CHECK(some.samples.back().first >> 32 == 13);
  const dataset streamed(store_of(data), "mem:", {.window = 2});
  CHECK(delivered_by(epochs(streamed, {.epochs = endless, .batch = 7}), 7, 9).samples.size() == 63);
}

TEST_CASE("a folder is a dataset, by its name, a prefix of paths or a pattern; the index may lie in it") {
  const tar_dataset data({7, 3}, 100);
  test::temporary_folder at;
  const std::string folder = std::filesystem::path(at.file("x")).parent_path().string();
  for (const auto& [url, content] : data.store->objects) {
    std::ofstream(folder + '/' + url.substr(4), std::ios::binary) << content;
  }
  keys wanted;
  for (const std::string& place : {folder, folder + '/', folder + "/*.tar", folder + "/10"}) {
    INFO(place);
    const dataset train(files(), place, {.index = folder + "/train.index"});
    runtime rt;
    keys got;
    for (const sample& s : rt.run(epochs(train, {.seed = 1}))) got.emplace_back(s.mark.position, s.key);
    CHECK(got.size() == 10);
    std::filesystem::remove(folder + "/train.index");
    if (wanted.empty()) wanted = got;
    CHECK(got == wanted);
  }
}

TEST_CASE("states that were saved before there were datasets are those of today, and resume") {
  const std::string of_index =
      R"({"millrace":"epochs","version":2,"seed":3,"epoch":0,"position":20,"tracks":6,"slice":256,")"
      R"(index":"bf19821e73af5651c25c62f10dfd0ae2","check":"db27a9fa"})";
  const std::string of_window =
      R"({"millrace":"epochs","order":"window","version":2,"seed":3,"epoch":0,"position":12,"rank":)"
      R"(0,"world_size":1,"shards":2,"window":6,"window_bytes":536870912,"list":"751335b9d5c2c04785)"
      R"(7f77e97ad0f038","place":"AwECAhwHASAIAgCBeAQidjEiAwwEAwQEBAECAAQAAwGByAIEInYxIgIMBAMBDAQDA)"
      R"(OSQMQU","check":"bec969cf"})";
  const std::string of_mix =
      R"({"millrace":"epochs","version":2,"seed":3,"epoch":0,"position":20,"tracks":40,"slice":0,"i)"
      R"(ndex":"3fb192d16f6c9f1f2938bfb5a7b0dd75","mix":"last_end 3:c97b1239 1:6b8d8bbf","check":"5)"
      R"(ef685c9"})";
  const auto is_saved = [](const std::string& saved, const dataset& data, const epochs_options& o,
                           std::size_t batches) {
    CHECK(delivered_by(epochs(data, o), o.batch, batches).state == saved);
  };
  const auto goes_on = [](const std::string& saved, const dataset& data, const epochs_options& o, std::size_t rest,
                          const std::string& first, const std::string& last) {
    const keys got = delivered_by(epochs(data, o, saved), o.batch).samples;
    CHECK(got.size() == rest);
    CHECK(got.front().second == first);
    CHECK(got.back().second == last);
  };
  const tar_dataset data({7, 20, 2}, 100);
  const dataset indexed(store_of(data), data.indexes, {.prefix = "mem:"});
  // Slices of small data are shorter by default than they were; those of the state stay.
  const dataset as_it_was(store_of(data), data.indexes, {.prefix = "mem:", .slice = 256});
  REQUIRE(default_slice(*data.indexes, 1) != 256);
  is_saved(of_index, as_it_was, {.seed = 3, .epochs = 2, .batch = 4, .tracks = 6}, 5);
  goes_on(of_index, indexed, {.seed = 3, .epochs = 2, .batch = 4, .tracks = 6}, 38, "s1/7", "s1/15");
  const dataset streamed(store_of(data), "mem:", {.shards = 2, .window = 6});
  is_saved(of_window, streamed, {.seed = 3, .epochs = 2, .batch = 4}, 3);
  goes_on(of_window, streamed, {.seed = 3, .epochs = 2, .batch = 4}, 46, "s1/7", "s1/18");

  const auto store = std::make_shared<test::dataset_store>(1);
  const std::shared_ptr<const storage> from = store;
  const tar_dataset web({30, 18}, 100, 1, "web/", store);
  const tar_dataset books({5, 20}, 100, 2, "books/", store);
  const dataset both({{dataset(from, web.indexes, {.prefix = "mem:web/"}), 3},
                      {dataset(from, books.indexes, {.prefix = "mem:books/"}), 1}});
  is_saved(of_mix, both, {.seed = 3, .epochs = 2, .batch = 4, .tracks = 40}, 5);
  goes_on(of_mix, both, {.seed = 3, .epochs = 2, .batch = 4, .tracks = 40}, 178, "web/s0/15", "books/s1/15");
}
