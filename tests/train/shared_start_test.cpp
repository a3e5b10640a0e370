// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/dataset.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/formats/array_shards.hpp>
#include <millrace/index/detail/listing_file.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/epoch_plan.hpp>

#include "tests/support/damaging_storage.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::delivered;
using test::delivered_by;
using test::tar_dataset;

// What is read before the first sample: listings and indexes, once a host, once a fleet, or by need.
namespace {

/// Notes what is read of the index, and how often is listed.
class watched_storage final : public forwarding_storage {
 public:
  explicit watched_storage(std::shared_ptr<const storage> inner) : forwarding_storage(std::move(inner)) {}

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    const bool first = length <= 64;
    if (object.url == index && !first) reads.emplace_back(offset, length);
    if (object.url == index && first) ++comparisons;
    return inner()->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    return read(std::move(object), std::move(etag), 0, length, std::move(slabs));
  }
  async_generator<shard> list(std::string prefix) const override {
    ++lists;
    return inner()->list(std::move(prefix));
  }
  std::uint64_t read_bytes() const {
    std::uint64_t all = 0;
    for (const auto& [offset, length] : reads) all += length;
    return all;
  }

  const std::string index = "mem://train.index";
  mutable std::vector<std::pair<std::uint64_t, std::size_t>> reads;
  mutable std::uint64_t comparisons = 0;
  mutable std::uint64_t lists = 0;
};

std::string text_of(const index_set& indexes) {
  std::string text;
  write_indexes(indexes, text);
  return text;
}

constexpr std::string_view tars = "mem:1";  // which leaves out the index

dataset_options by_need() {
  dataset_options o;
  o.index = "mem://train.index";
  o.index_memory = 0;
  o.prefix = "mem:";
  o.slice = 64;
  return o;
}

std::string failure_of(const dataset& data, const epochs_options& how) {
  try {
    delivered_by(epochs(data, how), how.batch);
    return "no error";
  } catch (const error& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("a training by an index in a store whose rows are read by need is that by indexes in memory") {
  const tar_dataset data({700, 0, 900, 300, 1, 3000}, 10);
  data.store->objects["mem://train.index"] = text_of(*data.indexes);
  const auto store = std::make_shared<watched_storage>(data.store);
  const dataset given(std::shared_ptr<const storage>(data.store), data.indexes, {.prefix = "mem:", .slice = 64});
  for (const std::uint32_t world : {1U, 5U}) {
    for (const std::uint64_t delay : {0U, 20'000U}) {
      data.store->delay_us = delay;
      const dataset stored(std::shared_ptr<const storage>(store), std::string(tars), by_need());
      for (std::uint32_t r = 0; r < world; ++r) {
        INFO("rank " << r << " of " << world << ", answers within " << delay << " us");
        const epochs_options how{
            .seed = 5, .epochs = 2, .batch = 10, .rank = {.index = r, .world_size = world}, .tracks = 15};
        const delivered all = delivered_by(epochs(given, how), 10);
        const delivered read = delivered_by(epochs(stored, how), 10);
        CHECK(all.samples.size() > 4901 * 2 / world - 100);
        CHECK(read.samples == all.samples);
        CHECK(read.state == all.state);
      }
      CHECK(stored.samples() == given.samples());
    }
  }
}

TEST_CASE("a rank reads the head of an index in a store, and of its rows twice its share") {
  const tar_dataset data(std::vector<std::size_t>(4, 12'800), 1);
  const std::string text = text_of(*data.indexes);
  const index_file_head head = index_file_head::read(text, "x", 0, text.size());
  data.store->objects["mem://train.index"] = text;
  const auto store = std::make_shared<watched_storage>(data.store);
  dataset_options o = by_need();
  o.slice = 256;
  const dataset stored(std::shared_ptr<const storage>(store), std::string(tars), o);
  const epochs_options how{.seed = 5, .batch = 10, .rank = {.index = 3, .world_size = 20}, .tracks = 20};
  // One that holds no more than it does; what begins in a block has the end of another one.
  const delivered all = delivered_by(epochs(stored, how), 10);
  CHECK(all.samples.size() == 2560);
  const std::uint64_t first = store->reads.front().second;
  const std::uint64_t rows = store->read_bytes() - first;
  CHECK(store->reads.front().first == 0);
  CHECK(first <= 8 * MiB);
  const std::uint64_t share = (text.size() - head.bytes()) / 20;
  INFO(rows << " bytes of rows, and " << share << " are its share");
  CHECK(rows <= 2 * share + 2 * 256 * 48);  // a slice more than its share, at the track's ends
  // The plan knows of it.
  const epoch_plan plan = epoch_plan::of_training(stored, how);
  CHECK(plan.index_requests > 200);
  CHECK(plan.index_bytes > text.size());
  CHECK(plan.index_bytes < 3 * text.size());
  CHECK_THAT(stored.plan(how), Contains("of the index"));
}

TEST_CASE("rows of an index in a store that come damaged are read once more, and then named") {
  const tar_dataset data({700, 300}, 10);
  const std::string text = text_of(*data.indexes);
  const index_file_head head = index_file_head::read(text, "x", 0, text.size());
  data.store->objects["mem://train.index"] = text;
  const std::uint64_t rows = head.bytes() + 64 + 16 + 16;  // the names fit into 32 bytes
  const epochs_options how{.seed = 5, .batch = 10, .tracks = 12};
  const auto line = std::make_shared<test::damaging_storage>(data.store);
  const dataset stored(std::shared_ptr<const storage>(line), std::string(tars), by_need());
  line->damage("mem://train.index", rows + 16 * 10, 2);  // also of the first reading, which wants the head alone
  CHECK(failure_of(stored, how) == "no error");
  CHECK(line->flips() == 2);
  CHECK(line->second_readings() > 0);
  // In the store itself.
  data.store->objects["mem://train.index"][static_cast<std::size_t>(rows + 16 * 300)] ^= 1;
  CHECK_THAT(failure_of(stored, how),
             Contains("mem://train.index at byte ") &&
                 Contains("the rows of samples 256 to 511 of \"100.tar\" have a wrong checksum"));
  // And in the head.
  data.store->objects["mem://train.index"] = text;
  data.store->objects["mem://train.index"][60] ^= 1;
  CHECK_THAT(failure_of(dataset(std::shared_ptr<const storage>(line), std::string(tars), by_need()), how),
             Contains("the head of the index has a wrong checksum"));
}

TEST_CASE("an index in a store that is replaced while its rows are read is an error") {
  const tar_dataset data({700, 300}, 10);
  data.store->objects["mem://train.index"] = text_of(*data.indexes);
  const dataset stored(std::shared_ptr<const storage>(data.store), std::string(tars), by_need());
  testing::virtual_loop loop;
  stream<sample> in = epochs(stored, {.seed = 5, .epochs = 3, .batch = 10, .tracks = 2, .ahead = 20});
  const auto take = [](stream<sample>& from, std::size_t n) -> task<void> {
    for (; n > 0; --n) {
      const std::optional<sample> s = co_await from.next();
      if (!s) co_return;
    }
  };
  block_on(loop, take(in, 20));
  data.store->bad["mem://train.index"] = test::harm::changed;
  CHECK_THROWS_AS(block_on(loop, take(in, 3000)), changed_error);
}

TEST_CASE("where samples are chosen, the whole of an index in a store is read") {
  const tar_dataset data({700, 0, 900, 300}, 10);
  data.store->objects["mem://train.index"] = text_of(*data.indexes);
  const auto of = std::shared_ptr<const storage>(data.store);
  const dataset given(of, data.indexes, {.prefix = "mem:", .slice = 64});
  const auto seventh = [](const indexed_sample& s) { return s.number % 7 == 3 && s.bytes != 0; };
  const epochs_options how{.seed = 5, .batch = 10, .tracks = 12};
  for (const bool after_whole : {false, true}) {
    const dataset stored(of, std::string(tars), by_need());
    if (after_whole) CHECK(delivered_by(epochs(stored, how), 10).samples.size() == 1900);
    CHECK(!stored.subset(seventh).samples());
    const delivered part = delivered_by(epochs(given.subset(seventh), how), 10);
    const delivered read = delivered_by(epochs(stored.subset(seventh), how), 10);
    CHECK(read.samples == part.samples);
    CHECK(read.state == part.state);
    CHECK(delivered_by(epochs(stored, how), 10).samples.size() == 1900);
  }
}

namespace {

task<void> take_of(dataset data, epochs_options how, delivered& out, std::uint64_t after_ms) {
  co_await sleep_for(std::chrono::milliseconds(after_ms));
  stream<sample> in = epochs(data, how);
  task<void> taking = test::take_batches_of(std::move(in), how.batch, SIZE_MAX / 65536, out);
  co_await std::move(taking);
}

/// All ranks of a host at once, each with a dataset of its own.
task<void> train_together(std::shared_ptr<const storage> store, const dataset_options& o, epochs_options how,
                          std::uint32_t ranks, std::vector<delivered>& out) {
  executor& ex = co_await this_executor();
  out.assign(ranks, delivered());
  std::vector<spawned<void>> each;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    how.rank = {.index = r, .world_size = ranks, .local_index = r, .local_world_size = ranks};
    dataset own(store, std::string(tars), o);
    each.emplace_back(ex, take_of(std::move(own), how, out[r], 3 * r));
  }
  for (spawned<void>& one : each) co_await one;
}

std::size_t files_in(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("ranks of a machine list once and read the index of a store once, in each start anew") {
  const tar_dataset data({700, 0, 900, 300}, 10);
  data.store->objects["mem://train.index"] = text_of(*data.indexes);
  data.store->delay_us = 5000;
  const test::temporary_folder at;
  for (const std::size_t memory : {std::size_t{0}, 64 * MiB}) {
    const auto store = std::make_shared<watched_storage>(data.store);
    dataset_options o = by_need();
    o.index_memory = memory;
    o.host_folder = at.path();
    const epochs_options how{.seed = 5, .batch = 10, .tracks = 16};
    std::vector<delivered> got;
    for (std::uint64_t start = 1; start <= 2; ++start) {
      INFO("start " << start << ", an index of up to " << memory << " bytes in memory");
      testing::virtual_loop loop;
      block_on(loop, train_together(store, o, how, 4, got));
      std::size_t samples = 0;
      for (const delivered& one : got) samples += one.samples.size();
      CHECK(samples == 1900);
      CHECK(store->lists == start);
      CHECK(std::count_if(store->reads.begin(), store->reads.end(), [](const auto& r) { return r.first == 0; }) ==
            static_cast<std::ptrdiff_t>(start));
      CHECK(store->comparisons == 3 * start);
      CHECK(files_in(at.path()) == 0);  // all have taken them
    }
    o.host_folder = "";
    testing::virtual_loop loop;
    block_on(loop, train_together(store, o, how, 4, got));
    CHECK(store->lists == 6);
  }
}

TEST_CASE("an index that another rank of the machine has read is compared with that of the store, and read anew") {
  const tar_dataset data({700, 300}, 10);
  data.store->objects["mem://train.index"] = text_of(*data.indexes);
  const test::temporary_folder at;
  const auto store = std::make_shared<watched_storage>(data.store);
  dataset_options o = by_need();
  o.host_folder = at.path();
  epochs_options how{.seed = 5, .batch = 10, .tracks = 16};
  how.rank = {.index = 0, .world_size = 2, .local_index = 0, .local_world_size = 2};
  CHECK(failure_of(dataset(std::shared_ptr<const storage>(store), std::string(tars), o), how) == "no error");
  CHECK(files_in(at.path()) == 2);
  data.store->etag = "\"v2\"";  // of the shards, too
  how.rank.index = how.rank.local_index = 1;
  const std::string failed = failure_of(dataset(std::shared_ptr<const storage>(store), std::string(tars), o), how);
  CHECK(store->comparisons == 1);
  CHECK(std::count_if(store->reads.begin(), store->reads.end(), [](const auto& r) { return r.first == 0; }) == 2);
  CHECK_THAT(failed, Contains("is of another version of this shard"));
}

TEST_CASE("a listing that was written is read in the place of a listing, and refused where it is of another prefix") {
  const tar_dataset data({70, 90, 30}, 10);
  detail::listing_writer listing("mem:1");
  for (const auto& [url, content] : data.store->objects) listing.add(shard(url, content.size(), data.store->etag));
  listing.add(shard("mem:1000.tar"));
  const std::string text = listing.text();
  detail::listing_reader reader(text, "x", "mem:1");
  CHECK(reader.count() == 4);
  for (const auto& [url, content] : data.store->objects) {
    CHECK(reader.next() == shard(url, content.size(), data.store->etag));
  }
  const std::optional<shard> last = reader.next();
  CHECK(last->url == "mem:1000.tar");
  CHECK(!last->size);
  CHECK(last->etag.empty());
  CHECK(!reader.next());
  CHECK_THROWS_AS(detail::listing_reader(text, "x", "mem:2"), configuration_error);
  for (std::size_t n = 0; n < text.size(); ++n) {
    CHECK_THROWS_AS(detail::listing_reader(std::string_view(text).substr(0, n), "x", "mem:1"), index_error);
    std::string wrong = text;
    wrong[n] ^= 4;
    CHECK_THROWS_AS(detail::listing_reader(wrong, "x", "mem:1"), index_error);
  }

  detail::listing_writer right("mem:1");
  for (const auto& [url, content] : data.store->objects) right.add(shard(url, content.size(), data.store->etag));
  data.store->objects["mem://train.index"] = text_of(*data.indexes);
  data.store->objects["mem://a.listing"] = right.text();
  const auto store = std::make_shared<watched_storage>(data.store);
  dataset_options o = by_need();
  o.listing = "mem://a.listing";
  const epochs_options how{.seed = 5, .batch = 10, .tracks = 16};
  const auto opened = [&](const std::string& prefix) {
    return dataset(std::shared_ptr<const storage>(store), prefix, o);
  };
  CHECK(delivered_by(epochs(opened("mem:1"), how), 10).samples.size() == 190);
  CHECK(store->lists == 0);
  CHECK_THAT(failure_of(opened("mem:10"), how), Contains("the listing is of mem:1, and not of mem:10"));
  // What has changed since is an error when it is read; what has come is not seen, unless the store lists.
  data.store->objects["mem:199.tar"] = data.store->objects["mem:100.tar"];
  data.store->objects["mem:1.millrace.listing"] = "x";  // which no listing has
  CHECK(failure_of(opened("mem:1"), how) == "no error");
  data.store->bad["mem:101.tar"] = test::harm::changed;
  CHECK_THAT(failure_of(opened("mem:1"), how), Contains("is of another version of this shard"));
  data.store->bad.clear();
  o.listing.clear();
  CHECK_THAT(failure_of(opened("mem:1"), how), Contains("mem:199.tar") && Contains("it does not have this shard"));
  o.listing = "mem://no.listing";
  data.store->missing = o.listing;
  CHECK_THAT(failure_of(opened("mem:1"), how), Contains("mem://no.listing"));
  CHECK_THROWS_AS(dataset(std::shared_ptr<const storage>(store), std::vector<shard>{shard("mem:100.tar")}, o),
                  configuration_error);
}

TEST_CASE("before its first sample a rank asks an S3 store four times beside its data, by a listing and an index") {
  const tar_dataset data({700, 800, 900, 300}, 10);
  s3_server::background server;
  detail::listing_writer listing("s3://corpus/train/");
  for (const auto& [url, content] : data.store->objects) {
    const std::string key = "train/" + url.substr(4);
    listing.add(shard("s3://corpus/" + key, content.size(), server.put("corpus", key, content)));
  }
  server.put("corpus", "millrace.listing", listing.text());
  // The shards are others to their index where the store has other ETags: they are indexed anew.
  const std::string endpoint = server.endpoint();
  s3::config_options at;
  at.endpoint = endpoint;
  at.region = "us-east-1";
  const s3::client client(s3::config(at), s3::credentials("test-key", "test-secret"));
  const auto loop = make_event_loop();
  std::vector<shard_index> all;
  for (const auto& [url, content] : data.store->objects) {
    const std::string name = url.substr(4);
    const shard one("s3://corpus/train/" + name);
    all.push_back(block_on(*loop, index_shard(s3::as_storage(client), one, name)));
  }
  server.put("corpus", "train.index", text_of(index_set(std::move(all))));
  const dataset stored(client, "s3://corpus/train/",
                       {.index = "s3://corpus/train.index",
                        .listing = "s3://corpus/millrace.listing",
                        .index_memory = 0,
                        .slice = 256});
  server.log().clear();
  runtime rt;
  auto run = rt.run(epochs(stored, {.seed = 5, .batch = 1, .rank = {.index = 2, .world_size = 8}, .tracks = 8}));
  REQUIRE(run.next());
  std::size_t listings = 0, heads = 0, rows = 0, others = 0;
  for (const s3_server::logged_request& r : server.log().entries()) {
    if (r.key.find(".tar") != std::string::npos) break;  // data
    const bool first = r.range.find("=0-") != std::string::npos;
    ++(r.key == "millrace.listing" ? listings : r.key != "train.index" ? others : first ? heads : rows);
  }
  CHECK(listings == 1);
  CHECK(heads == 1);
  CHECK(rows >= 1);
  CHECK(rows <= 2);
  CHECK(others == 0);
}
