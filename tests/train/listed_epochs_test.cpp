// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/dataset.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/index/detail/index_parts.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/detail/listed_index.hpp>

#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::tar_dataset;
using test::delivered;
using test::delivered_by;

namespace {

std::vector<shard> list_of(const tar_dataset& data) {
  std::vector<shard> all;
  for (const auto& [url, content] : data.store->objects) all.emplace_back(url, content.size(), data.store->etag);
  std::swap(all.front(), all.back());  // a list has no order that counts
  return all;
}

test::settings small(std::uint64_t epochs, std::size_t batch) {
  test::settings o{.seed = 3, .epochs = epochs, .batch = batch};
  o.tracks = 12;
  o.slice = 4;
  o.prefix = "mem:";
  return o;
}

stream<sample> open(const tar_dataset& data, std::vector<shard> list, const test::settings& o) {
  return test::train_on(from_range(std::move(list)), std::shared_ptr<const storage>(data.store), o);
}

std::string failure_of(const tar_dataset& data, std::vector<shard> list, const test::settings& o) {
  try {
    delivered_by(open(data, std::move(list), o), o.batch);
    return "no error";
  } catch (const error& e) {
    return e.what();
  }
}

/// What lies in the folder of that file.
std::vector<std::string> files_in(const std::string& file) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(file).parent_path())) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

std::map<std::uint64_t, std::string> canonical(const tar_dataset& data, std::uint64_t epochs) {
  std::map<std::uint64_t, std::string> wanted;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const std::vector<std::string> keys = data.order(3, epoch, {.tracks = 12, .slice = 4});
    for (std::size_t g = 0; g < keys.size(); ++g) wanted[epoch << 32 | g] = keys[g];
  }
  return wanted;
}

}  // namespace

TEST_CASE("the first run of a list makes the index and has the canonical order; later runs and other ranks read it") {
  const tar_dataset data({17, 20, 1, 9}, 400);
  test::temporary_folder at;
  const std::string file = at.file("train.index");
  for (const std::uint32_t world : {1U, 3U}) {
    for (const bool there : {false, true}) {
      INFO(world << " ranks, " << (there ? "with an index" : "without"));
      std::map<std::uint64_t, std::string> got;
      for (std::uint32_t r = world; r-- > 0;) {  // one after the other: the first one is alone
        test::settings o = small(2, 4);
        o.rank = {.index = r, .world_size = world};
        o.index_file = file;
        o.make_index = !there;
        data.store->read_bytes = 0;
        const delivered one = delivered_by(open(data, list_of(data), o), 4);
        for (const auto& [position, key] : one.samples) CHECK(got.emplace(position, key).second);
        CHECK(one.batches == std::vector<std::uint64_t>(2, (47 + 4 * world - 1) / (4 * world)));
        CHECK(files_in(file) == std::vector<std::string>{"train.index"});
        if (there && world == 1) CHECK(data.store->read_bytes < 3 * data.indexes->sample_bytes());
        // Its states are those of a training that was given the index.
        test::settings given = o;
        given.index_file = {};
        CHECK(one.state ==
              delivered_by(test::train_on(data.indexes, std::shared_ptr<const storage>(data.store), given), 4).state);
      }
      CHECK(got == canonical(data, 2));
    }
    std::filesystem::remove(file);
  }
}

TEST_CASE("a wrong byte in the rows of an index ends the run that comes to them, and file, shard and byte are named") {
  const tar_dataset data({300, 20}, 10);
  test::temporary_folder at;
  test::settings o = small(1, 4);
  o.index_file = at.file("train.index");
  std::string text;
  write_indexes(*data.indexes, text);
  const shard_index& first = (*data.indexes)[0];
  const std::size_t rows = text.size() - static_cast<std::size_t>((*data.indexes)[1].file_bytes()) - 4 - 16 * 900;
  REQUIRE(first.fields() == 600);
  text[rows + 16 * 290] ^= 1;  // the key of sample 290
  std::ofstream(o.index_file, std::ios::binary) << text;
  CHECK_THAT(failure_of(data, list_of(data), o),
             Contains(o.index_file + " at byte " + std::to_string(rows + 16 * 256) +
                      ": the rows of samples 256 to 299 of \"100.tar\" have a wrong checksum"));
}

TEST_CASE("a training by a file whose rows are read by need is that by indexes in memory, of a part, too") {
  const tar_dataset data({700, 0, 900, 300}, 10);
  test::temporary_folder at;
  const std::string file = at.file("train.index");
  std::string text;
  write_indexes(*data.indexes, text);
  std::ofstream(file, std::ios::binary) << text;
  const auto store = std::shared_ptr<const storage>(data.store);
  const dataset given(store, data.indexes, {.prefix = "mem:", .slice = 64});
  const dataset by_need(store, "mem:", {.index = file, .prefix = "mem:", .slice = 64});
  CHECK(by_need.samples() == given.samples());
  CHECK(by_need.bytes() == given.bytes());
  const auto seventh = [](const indexed_sample& s) { return s.number % 7 == 3 && s.bytes != 0; };
  const epochs_options how{.seed = 5, .epochs = 2, .batch = 10, .tracks = 12};
  const delivered all = delivered_by(epochs(given, how), 10);
  CHECK(all.samples.size() == 2 * 1900);
  const delivered read = delivered_by(epochs(by_need, how), 10);
  CHECK(read.samples == all.samples);
  CHECK(read.state == all.state);
  const delivered part = delivered_by(epochs(given.subset(seventh), how), 10);
  CHECK(part.samples.size() > 500);
  const delivered part_read = delivered_by(epochs(by_need.subset(seventh), how), 10);
  CHECK(part_read.samples == part.samples);
  CHECK(part_read.state == part.state);
}

TEST_CASE("a file that is of another list is refused, and the shard is named") {
  tar_dataset data({17, 20, 1, 9}, 400);
  test::temporary_folder at;
  const std::string file = at.file("train.index");
  test::settings o = small(1, 4);
  o.index_file = file;
  o.make_index = false;
  CHECK_THAT(failure_of(data, list_of(data), o), Contains("train.index") && Contains("there is no index"));
  o.make_index = true;
  CHECK(failure_of(data, list_of(data), o) == "no error");

  std::vector<shard> list = list_of(data);
  list.emplace_back("mem:104.tar", 5000);
  CHECK(failure_of(data, list, o) ==
        "mem:104.tar: the index " + file + " is of another list: it does not have this shard");
  list.resize(3);  // without 100.tar, which stands last
  CHECK(failure_of(data, list, o) ==
        "mem:100.tar: the index " + file + " is of another list: this shard is not listed");
  list = list_of(data);
  list[1].etag = "\"v2\"";
  CHECK(failure_of(data, list, o) ==
        "mem:101.tar: the index \"101.tar\" is of another version of this shard: its ETag was \"v1\" and is \"v2\"");
  list = list_of(data);
  for (shard& s : list) s = shard(s.url);  // a list that knows no sizes
  CHECK(failure_of(data, list, o) == "no error");
  CHECK_THAT(failure_of(data, {}, o), Contains("the list has no shards"));

  std::ofstream(file, std::ios::app) << "more";
  CHECK_THAT(failure_of(data, list_of(data), o), Contains("train.index at byte ") && Contains("the index is cut"));
  o.index_file = "/no/such/folder/train.index";
  data.store->requests = 0;
  CHECK_THAT(failure_of(data, list_of(data), o), Contains("the index cannot be written: No such file or directory"));
  o.index_file = "/dev/null/train.index";
  CHECK_THAT(failure_of(data, list_of(data), o), Contains("the index cannot be written: Not a directory"));
  o.index_file = "/dev";
  CHECK_THAT(failure_of(data, list_of(data), o), Contains("the index cannot be read: "));
  CHECK(data.store->requests == 0);
  o.index_file = {};
  CHECK_THAT(failure_of(data, list_of(data), o), Contains("for data with an index: give .index"));
  o.make_index = true;
  o.part = 0;
  CHECK_THROWS_AS(open(data, list_of(data), o), configuration_error);
  o.part = 8 * MiB;
  o.resume = "{}";
  CHECK_THROWS_AS(open(data, list_of(data), o), configuration_error);
  o.resume = {};
  // A shard that cannot be indexed; nothing is left of the file.
  const std::string other = at.file("other.index");
  o.index_file = other;
  data.store->missing = "mem:101.tar";
  CHECK_THAT(failure_of(data, list_of(data), o), Contains("mem:101.tar") && Contains("there is no such object"));
  CHECK(files_in(other) == std::vector<std::string>{"train.index"});
}

TEST_CASE("an index beside the shards is read from their store, by every rank, and never made there") {
  const tar_dataset data({17, 20, 1, 9}, 400);
  std::string text;
  for (const shard_index& index : *data.indexes) index.write(text);
  const std::vector<shard> list = list_of(data);
  test::settings o = small(2, 4);
  o.index_file = "mem://train.index";
  data.store->missing = "mem://train.index";
  CHECK(failure_of(data, list, o) ==
        "mem://train.index: the index cannot be read, and in a store it is not made (millrace-index does): there is no "
        "such object");
  data.store->missing.clear();
  data.store->objects["mem://train.index"] = text;
  std::map<std::uint64_t, std::string> got;
  for (std::uint32_t r = 0; r < 3; ++r) {
    o.rank = {.index = r, .world_size = 3};
    const std::vector<shard> with_index = list_of(data);
    CHECK(with_index.size() == list.size() + 1);
    for (const auto& [position, key] : delivered_by(open(data, with_index, o), 4).samples) got.emplace(position, key);
  }
  CHECK(got == canonical(data, 2));
  data.store->objects["mem://train.index"].resize(text.size() - 1);
  CHECK_THAT(failure_of(data, list, o), Contains("mem://train.index at byte ") && Contains("the index is cut"));
  o.index_file = "http://elsewhere/train.index";
  CHECK_THAT(failure_of(data, list, o), Contains("the store of the shards does not serve the index"));
}

namespace {

/// What one of several ranks in one process reads to make an index, and what comes of it.
class indexing {
 public:
  std::uint32_t world = 1;
  std::string file = {};
  std::uint64_t begins_after_s = 0;
  std::uint64_t dies_after_us = 0;  // 0: it lives
};

task<std::string> make_index(const tar_dataset& data, indexing how, std::uint32_t r) {
  test::settings o = small(1, 4);
  o.index_file = how.file;
  o.rank = {.index = r, .world_size = how.world};
  co_await sleep_for(std::chrono::seconds(how.begins_after_s));
  detail::listed_index index(data.store, o.prefix, o.listed(), o.training());
  std::vector<shard> list = list_of(data);
  // Ranks need not list the shards in one order.
  std::rotate(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(r % list.size()), list.end());
  if (how.dies_after_us != 0) {
    executor& ex = co_await this_executor();
    const spawned<std::shared_ptr<const index_set>> killed(ex, index.of(std::move(list)));
    co_await sleep_for(std::chrono::microseconds(how.dies_after_us));
    co_return std::string();
  }
  std::shared_ptr<const index_set> made = co_await index.of(std::move(list));
  co_return made->digest().text();
}

task<std::vector<std::string>> all_ranks(const tar_dataset& data, std::vector<indexing> ranks) {
  executor& ex = co_await this_executor();
  std::vector<spawned<std::string>> each;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].world = static_cast<std::uint32_t>(ranks.size());
    each.emplace_back(ex, make_index(data, ranks[r], static_cast<std::uint32_t>(r)));
  }
  std::vector<std::string> digests;
  for (spawned<std::string>& one : each) {
    std::string digest = co_await one;
    digests.push_back(std::move(digest));
  }
  co_return std::move(digests);
}

/// How many bytes the ranks read, in shares of all shards.
double shares_read(const tar_dataset& data, const std::vector<std::string>& digests, std::size_t lost) {
  std::size_t good = 0;
  for (const std::string& d : digests) good += d == data.indexes->digest().text() ? 1 : 0;
  CHECK(good + lost == digests.size());
  double all = 0;
  for (const auto& [url, content] : data.store->objects) all += static_cast<double>(content.size());
  return static_cast<double>(std::exchange(data.store->read_bytes, 0)) / all;
}

}  // namespace

TEST_CASE("ranks make the index together: every shard is read once, and all have the same") {
  const tar_dataset data({17, 20, 1, 9, 30, 30, 30, 4, 11, 12, 1, 25}, 4000);
  test::temporary_folder at;
  for (const std::uint64_t delay : {0U, 5000000U}) {
    data.store->delay_us = delay;
    for (const std::size_t world : {2U, 3U, 8U, 20U}) {
      INFO(world << " ranks, answers within " << delay << " us");
      const std::string file = at.file("train.index");
      testing::virtual_loop loop(world);
      const std::vector<std::string> digests =
          block_on(loop, all_ranks(data, std::vector<indexing>(world, indexing{.file = file})));
      CHECK(shares_read(data, digests, 0) == 1.0);
      CHECK(files_in(file) == std::vector<std::string>{"train.index"});
      std::filesystem::remove(file);
    }
  }
}

TEST_CASE("a rank that dies, or starts late or never, does not block the others: they read its shards") {
  const tar_dataset data({17, 20, 1, 9, 30, 30, 30, 4, 11, 12, 1, 25}, 4000);
  test::temporary_folder at;
  data.store->delay_us = 3000000;
  const std::string file = at.file("train.index");
  const auto read_by = [&](std::vector<indexing> ranks, std::size_t lost) {
    for (indexing& one : ranks) one.file = file;
    testing::virtual_loop loop;
    const double shares = shares_read(data, block_on(loop, all_ranks(data, std::move(ranks))), lost);
    CHECK(files_in(file) == std::vector<std::string>{"train.index"});
    std::filesystem::remove(file);
    return shares;
  };
  const indexing well;
  // At once, in the middle of its share, and never.
  CHECK(read_by({well, indexing{.dies_after_us = 1}, well, well}, 1) < 2.0);
  CHECK(read_by({well, indexing{.dies_after_us = 1000000}, well, well}, 1) < 2.0);
  CHECK(read_by({indexing{.dies_after_us = 1000000}, indexing{.dies_after_us = 2000000}, well}, 2) < 2.0);
  // One that comes within the patience of the others finds its share untouched, one that comes later all of it done.
  CHECK(read_by({well, indexing{.begins_after_s = 20}, well}, 0) == 1.0);
  CHECK(read_by({well, indexing{.begins_after_s = 20000}, well}, 0) < 2.0);
  // Who reads for long is waited for.
  data.store->delay_us = 3'000'000'000;
  CHECK(read_by({well, well, well}, 0) == 1.0);
}

TEST_CASE("what is left of an earlier try is taken where it is whole and of this version, and read again else") {
  tar_dataset data({17, 20, 1, 9}, 4000);
  test::temporary_folder at;
  const std::string file = at.file("train.index");
  data.store->delay_us = 1000;
  const auto ranks = [&](std::uint64_t dies) {
    return std::vector<indexing>{{.file = file, .dies_after_us = dies}, {.file = file, .dies_after_us = dies}};
  };
  const auto first_try = [&] {  // killed when all shards are read but not all found
    std::filesystem::create_directories(file + ".parts");
    detail::index_parts parts(file);
    for (const shard_index& index : *data.indexes) parts.leave(index);
  };
  first_try();
  {
    testing::virtual_loop loop;
    CHECK(shares_read(data, block_on(loop, all_ranks(data, ranks(0))), 0) == 0.0);
  }
  std::filesystem::remove(file);
  first_try();
  for (const auto& part : std::filesystem::directory_iterator(file + ".parts")) {
    std::filesystem::resize_file(part.path(), 100);
  }
  {
    testing::virtual_loop loop;
    CHECK(shares_read(data, block_on(loop, all_ranks(data, ranks(0))), 0) == 1.0);
  }
  std::filesystem::remove(file);
  first_try();
  data.store->etag = "\"v2\"";
  {
    testing::virtual_loop loop;
    CHECK(shares_read(data, block_on(loop, all_ranks(data, ranks(0))), 2) == 1.0);
  }
  // Without ETags nothing tells a version but when it was left.
  for (const bool old : {false, true}) {
    std::filesystem::remove(file);
    data.store->etag.clear();
    first_try();
    for (const auto& part : std::filesystem::directory_iterator(file + ".parts")) {
      const auto now = std::filesystem::file_time_type::clock::now();
      std::filesystem::last_write_time(part.path(), now - std::chrono::hours(old ? 1 : 0));
    }
    testing::virtual_loop loop;
    CHECK(shares_read(data, block_on(loop, all_ranks(data, ranks(0))), old ? 2 : 0) == (old ? 1.0 : 0.0));
  }
}

TEST_CASE("a training of a list goes on where it was stopped, and has a state before its index is known") {
  const tar_dataset data({17, 20, 1, 9}, 400);
  test::temporary_folder at;
  const std::string file = at.file("train.index");
  runtime rt;
  std::string state;
  std::vector<std::string> got;
  const auto take = [&](std::size_t most) {
    test::settings o = small(2, 4);
    o.index_file = file;
    const std::string saved = state;
    o.resume = saved;
    auto run = rt.run(open(data, list_of(data), o) | batch(4));
    if (!saved.empty()) CHECK(run.state() == saved);
    CHECK(epoch_state::parse(run.state()).seed == 3);
    for (; most > 0; --most) {
      const auto b = run.next();
      if (!b) break;
      CHECK(run.batches() == 12);
      for (const sample& s : *b) {
        if (s.weight() != 0) got.push_back(s.key);
      }
    }
    state = run.state();
  };
  take(0);
  CHECK(epoch_state::parse(state).position == 0);
  take(5);
  CHECK(epoch_state::parse(state).position == 20);
  take(7);
  CHECK(epoch_state::parse(state).epoch == 1);
  take(1000);
  std::vector<std::string> wanted;
  for (const auto& [position, key] : canonical(data, 2)) wanted.push_back(key);
  CHECK(got == wanted);

  // A state of another index is refused when the index is known.
  epoch_state other = epoch_state::parse(state);
  other.epoch = 1;
  other.position = 8;
  other.index.low ^= 1;
  const std::string text = other.text();
  test::settings o = small(2, 4);
  o.index_file = file;
  o.resume = text;
  CHECK_THAT(failure_of(data, list_of(data), o), Contains("its index (digest) was"));
}

namespace {

/// Serves http URLs with a signature, from the objects of another.
class signing_store final : public storage {
 public:
  explicit signing_store(std::shared_ptr<const storage> from) : from_(std::move(from)) {}
  bool serves(std::string_view url) const noexcept override { return url.substr(0, 7) == "http://"; }
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    const std::size_t query = object.url.find("?signature=");
    if (query == std::string::npos) throw io_error("not signed", where{object.shown(), std::nullopt, {}});
    object.url = "mem:" + object.url.substr(9, query - 9);
    return from_->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
  }

 private:
  std::shared_ptr<const storage> from_;
};

}  // namespace

TEST_CASE("URLs that are signed for each run are one list, and no secret is in the index") {
  const tar_dataset data({17, 20, 1}, 400);
  test::temporary_folder at;
  const std::string file = at.file("train.index");
  const std::shared_ptr<const storage> store = std::make_shared<const signing_store>(data.store);
  for (const std::string secret : {"abc", "def"}) {
    std::vector<shard> list;
    for (const auto& [url, content] : data.store->objects) {
      list.emplace_back("http://h/" + url.substr(4) + "?signature=" + secret);
    }
    test::settings o = small(1, 4);
    o.prefix = "http://h/";
    o.index_file = file;
    CHECK(delivered_by(test::train_on(from_range(std::move(list)), store, o), 4).samples.size() == 38);
    std::ifstream in(file, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    CHECK_THAT(text, Contains("100.tar") && !Contains("abc") && !Contains("http"));
  }
}
