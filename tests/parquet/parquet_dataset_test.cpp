// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Parquet files as a dataset: the order, resumes, what is read, and damage.

#include <millrace/parquet.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/testing/s3_server/background.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/parquet/drawn_parquet.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/damaging_storage.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/record_epochs.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using millrace_test::drawn_table;
using test::failure_of;
using test::seen_samples;
using test::trained;

namespace {

const std::vector<std::string> columns = {"jpg", "label", "image"};

/// Drawn files in a store, and the samples of their rows: key, '|' and the fields, one after the other.
class drawn_files {
 public:
  std::shared_ptr<test::dataset_store> store = std::make_shared<test::dataset_store>(1);
  std::vector<std::vector<std::string>> samples;
  std::vector<std::uint64_t> counts;
  std::vector<std::uint64_t> groups;

  explicit drawn_files(std::uint64_t seed, std::uint64_t files = 4) {
    rng draw(seed, 1, 2);
    for (std::uint64_t f = 0; f < files; ++f) {
      const auto rows = static_cast<std::int64_t>(draw.below(f == 1 ? 1 : 90));
      const auto group = static_cast<std::int64_t>(1 + draw.below(40));
      const drawn_table drawn(seed * 100 + f, rows);
      const std::string name = "part-" + std::to_string(f) + ".parquet";
      store->objects["mem:d/" + name] = drawn_table::file(drawn.table, group, seed + f);
      samples.emplace_back();
      for (const drawn_table::row& r : drawn.rows) {
        std::string one = name + '#' + std::to_string(samples.back().size()) + '|';
        for (const char* const field : {"jpg", "label", "image.bytes", "image.path"}) {
          if (const auto at = r.find(field); at != r.end()) one += at->second;
        }
        samples.back().push_back(std::move(one));
      }
      counts.push_back(static_cast<std::uint64_t>(rows));
      for (std::int64_t at = 0; at < rows; at += group) {
        groups.push_back(static_cast<std::uint64_t>(std::min(group, rows - at)));
      }
    }
    store->objects["mem:d/README.md"] = "# Not a shard";
  }
  seen_samples model(const epochs_options& o) const {
    seen_samples all;
    const auto places = std::make_shared<const shard_counts>(counts, groups);
    for (std::uint64_t e = 0; e < o.epochs; ++e) {
      const sample_order order(places, o.seed, e, {.tracks = o.tracks, .groups = true});
      for (std::uint64_t g = 0; g < order.size(); ++g) {
        const sample_place p = order.at(g);
        all[e << 32 | g] = samples[static_cast<std::size_t>(p.shard)][static_cast<std::size_t>(p.ordinal)];
      }
    }
    return all;
  }
};

epochs_options small_training() {
  epochs_options o{.seed = 5, .epochs = 2, .batch = 8};
  o.tracks = 4;
  return o;
}

}  // namespace

TEST_CASE("rows of Parquet files are a dataset: the order, the ranks and resumes are exact", "[parquet]") {
  runtime rt;
  for (const std::uint64_t seed : {1, 2, 3}) {
    const drawn_files files(seed);
    const test::temporary_folder folder;
    const dataset data(std::shared_ptr<const storage>(files.store), "mem:d/",
                       {.index = folder.file("x.index"), .format = millrace::parquet({.columns = columns})});
    const epochs_options o = small_training();
    const seen_samples wanted = files.model(o);
    CHECK(trained(rt, data, o).samples == wanted);
    epochs_options narrow = o;
    narrow.bytes = 1;  // groups are read all the same, one after the other
    CHECK(trained(rt, data, narrow).samples == wanted);
    test::check_trainings(rt, data, o, wanted);
    rng random(seed, 0, 9);
    test::check_drawn_training(rt, random, data, o, wanted);
  }
}

TEST_CASE("a Parquet dataset reads each footer once, and then each row group once an epoch", "[parquet]") {
  runtime rt;
  const drawn_files files(4);
  const test::temporary_folder folder;
  const dataset_options how = {.index = folder.file("x.index"), .format = millrace::parquet({.columns = columns})};
  epochs_options o = small_training();
  o.epochs = 1;
  o.tracks = 1;
  {
    const dataset data(std::shared_ptr<const storage>(files.store), "mem:d/", how);
    auto run = rt.run(epochs(data, o));
    static_cast<void>(run.next());
  }
  files.store->requests = 0;
  files.store->read_bytes = 0;
  const dataset data(std::shared_ptr<const storage>(files.store), "mem:d/", how);
  CHECK(trained(rt, data, o).samples == files.model(o));
  // Files are small: the columns of a group that are far apart are one stretch, too.
  CHECK(files.store->requests == files.groups.size());
}

TEST_CASE("batches of Parquet rows keep the memory that they were decoded to, and no copies of it", "[parquet]") {
  constexpr int rows = 600;
  constexpr int group = 20;
  constexpr std::size_t size = 2000;
  rng draw(4, 4, 4);
  arrow::BinaryBuilder images;
  for (int i = 0; i < rows; ++i) {
    std::string image(size, '\0');
    for (char& c : image) c = static_cast<char>(draw.next());
    millrace_test::need_ok(images.Append(image));
  }
  const auto table = arrow::Table::Make(arrow::schema({arrow::field("jpg", arrow::binary())}),
                                        {millrace_test::need_ok(images.Finish())});
  const auto store = std::make_shared<test::dataset_store>(1);
  store->objects["mem:d/a.parquet"] = drawn_table::file(table, group, 0);
  const test::temporary_folder folder;
  const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                     {.index = folder.file("x.index"), .format = millrace::parquet()});
  epochs_options o{.seed = 5, .epochs = 2, .batch = 50};
  o.tracks = 4;
  runtime rt;
  int slices = 0, copies = 0;
  for (const std::vector<sample>& b : rt.run(epochs(data, o) | batch())) {
    for (const sample& s : b) ++(s["jpg"].retained() >= group * size ? slices : copies);
  }
  CHECK(slices == 2 * rows);
  CHECK(copies == 0);
}

TEST_CASE("over a network a footer is read twice, and a damaged row group once more", "[parquet]") {
  runtime rt;
  const drawn_files files(5, 1);
  REQUIRE(files.counts[0] > 20);
  const auto line = std::make_shared<test::damaging_storage>(files.store);
  const std::string url = "mem:d/part-0.parquet";
  std::string& file = files.store->objects[url];
  const test::temporary_folder folder;
  epochs_options o = small_training();
  o.epochs = 1;
  const auto train = [&](const std::string& index) {
    const dataset data(
        std::shared_ptr<const storage>(line), {shard(url)},
        {.index = folder.file(index), .format = millrace::parquet({.columns = columns}), .prefix = "mem:d/"});
    return trained(rt, data, o).samples;
  };
  test::captured_stderr log(test::captured_stderr::into::pipe);
  CHECK(train("a.index") == files.model(o));
  // A bit of the footer: the two readings differ, and a third one decides.
  line->damage(url, file.size() - 30);
  CHECK(train("b.index") == files.model(o));
  CHECK(line->flips() == 1);
  const auto text = [&](const char* index) {
    std::ifstream in(folder.file(index), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  CHECK(text("a.index") == text("b.index"));
  // Footers that are damaged each time.
  line->damage(url, file.size() - 30, 3);
  CHECK_THAT(failure_of([&] { train("c.index"); }), Contains(url) && Contains("no two are the same"));

  // The head of a page, after the magic: Arrow cannot read it, and does when it has come again.
  line->damage(url, 5);
  CHECK(train("a.index") == files.model(o));
  CHECK(line->flips() == 5);
  // In the store: read twice, and both times the same.
  file.replace(4, 12, std::string(12, '\xff'));
  const std::string said = failure_of([&] { train("a.index"); });
  CHECK_THAT(said, Contains("part-0.parquet") && Contains("row group 0, column \"jpg\": Arrow cannot read it"));
  CHECK_THAT(said, Contains("read twice"));
}

TEST_CASE("a Parquet dataset is refused for another object, other columns, and where it cannot be one", "[parquet]") {
  runtime rt;
  const drawn_files files(6, 2);
  const test::temporary_folder folder;
  const epochs_options o = small_training();
  const auto train = [&](const std::string& index, parquet_options of) {
    const dataset data(std::shared_ptr<const storage>(files.store), "mem:d/",
                       {.index = folder.file(index), .format = millrace::parquet(std::move(of))});
    return trained(rt, data, o).samples;
  };
  CHECK(train("x.index", {.columns = columns}) == files.model(o));
  CHECK_THAT(failure_of([&] { train("x.index", {.columns = {"jpg"}}); }),
             Contains("parquet (columns jpg, label, image)") && Contains("parquet (columns jpg)"));
  CHECK_THAT(failure_of([&] { train("y.index", {.columns = {"png"}}); }),
             Contains("part-0.parquet: parquet: there is no column \"png\" (it has: jpg, caption"));
  files.store->etag = "\"v2\"";
  CHECK_THAT(failure_of([&] { train("x.index", {.columns = columns}); }), Contains("\"v2\""));
  files.store->objects["mem:d/part-0.parquet"].resize(100);
  CHECK_THAT(failure_of([&] { train("z.index", {.columns = columns}); }),
             Contains("mem:d/part-0.parquet at byte 96: not a Parquet file, or cut short"));
}

TEST_CASE("a Parquet dataset of damaged objects gives errors that name them, or rows", "[parquet]") {
  runtime rt;
  drawn_files files(9, 1);
  REQUIRE(files.counts[0] > 20);
  std::string& file = files.store->objects["mem:d/part-0.parquet"];
  const std::string whole = file;
  const test::temporary_folder folder;
  epochs_options o = small_training();
  o.epochs = 1;
  const dataset_options how = {.index = folder.file("x.index"), .format = millrace::parquet({.columns = columns})};
  const auto failure = [&](const dataset_options& with) {
    return failure_of([&] { trained(rt, dataset(std::shared_ptr<const storage>(files.store), "mem:d/", with), o); });
  };
  REQUIRE(failure(how) == "no error");
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    rng draw(seed, 4, 4);
    file = whole;
    for (std::uint64_t flips = 1 + draw.below(4); flips > 0; --flips) {
      char& c = file[static_cast<std::size_t>(draw.below(file.size()))];
      c = static_cast<char>(static_cast<unsigned char>(c) ^ 1U << draw.below(8));
    }
    // Each second time the index is made of the damaged file, too.
    dataset_options with = how;
    if (seed % 2 == 1) with.index = folder.file("x" + std::to_string(seed) + ".index");
    const std::string said = failure(with);
    INFO("seed " << seed << ": " << said);
    if (said == "no error") continue;
    CHECK_THAT(said, Contains("part-0.parquet"));
    ++refused;
  }
  CHECK(refused > 10);
  CHECK(refused < 200);
}

TEST_CASE("the fields of a Parquet file are read without its data", "[parquet]") {
  const drawn_files files(8, 1);
  const auto loop = make_event_loop();
  const std::shared_ptr<const storage> store = files.store;
  const std::vector<parquet_field> all = block_on(*loop, read_parquet_fields(store, "mem:d/part-0.parquet"));
  CHECK(files.store->requests == 2);
  REQUIRE(all.size() == 20);
  CHECK(all[5].name == "label");
  CHECK(all[5].type == dtype::i64);
  CHECK(all[14].name == "box");
  CHECK(all[14].dims == shape{4});
  CHECK(all[15].name == "tokens");
  CHECK(all[15].ragged);
  CHECK_THAT(failure_of([&] { block_on(*loop, read_parquet_fields(store, "mem:d/README.md")); }),
             Contains("mem:d/README.md at byte 9: not a Parquet file, or cut short"));
}

TEST_CASE("a part of a Parquet dataset, and slices of another length, have all samples once", "[parquet]") {
  runtime rt;
  const drawn_files files(7);
  const test::temporary_folder folder;
  epochs_options o = small_training();
  o.epochs = 1;
  std::map<std::string, int> all;
  for (const auto& shard : files.samples) {
    for (const std::string& s : shard) ++all[s];
  }
  for (const std::uint64_t slice : {0, 1, 7}) {
    const dataset data(
        std::shared_ptr<const storage>(files.store), "mem:d/",
        {.index = folder.file("x.index"), .format = millrace::parquet({.columns = columns}), .slice = slice});
    std::map<std::string, int> seen;
    const auto add = [&](const dataset& part) {
      for (const auto& [place, s] : trained(rt, part, o).samples) ++seen[s];
    };
    if (slice != 0) add(data);
    if (slice == 0) {
      add(data.subset([](const indexed_sample& s) { return s.ordinal % 3 == 0; }));
      add(data.subset([](const indexed_sample& s) { return s.ordinal % 3 != 0; }));
    }
    CHECK(seen == all);
  }
}

TEST_CASE("row groups that cannot meet the conditions are no part of a Parquet dataset", "[parquet]") {
  runtime rt;
  // Ten rows a group; the numbers ascend.
  const std::int64_t rows = 95;
  arrow::Int64Builder numbers;
  for (std::int64_t i = 0; i < rows; ++i) millrace_test::need_ok(numbers.Append(i));
  std::shared_ptr<arrow::Array> column;
  millrace_test::need_ok(numbers.Finish(&column));
  const auto table = arrow::Table::Make(arrow::schema({arrow::field("n", arrow::int64())}), {column}, rows);
  const auto store = std::make_shared<test::dataset_store>(1);
  store->objects["mem:d/a.parquet"] = drawn_table::file(table, 10, 0);
  const test::temporary_folder folder;
  const auto kept = [&](std::vector<parquet_condition> where) {
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                       {.index = folder.file("x.index"), .format = millrace::parquet({.where = std::move(where)})});
    std::map<std::string, std::int64_t> seen;
    auto run = rt.run(epochs(data, {.seed = 5, .batch = 8}), {.show = progress::off});
    while (const std::optional<sample> s = run.next()) {
      if (s->weight() == 0) continue;
      std::int64_t n = 0;
      std::memcpy(&n, (*s)["n"].data(), sizeof n);
      CHECK(seen.emplace(s->key, n).second);
    }
    return seen;
  };
  const auto some = kept({{"n", ">=", 35}, {"n", "<", 60.5}});
  CHECK(some.size() == 40);  // 30 to 69
  for (std::int64_t i = 0; i < 40; ++i) CHECK(some.at("a.parquet#" + std::to_string(i)) == 30 + i);
  // An index of other conditions is not taken for this one.
  CHECK_THAT(failure_of([&] { kept({{"n", "<", 5}}); }), Contains("where n >= 35; where n < 60.5"));
  CHECK_THAT(failure_of([&] { kept({{"n", "=", 5}}); }), Contains("has the test \"=\": it may be <, <=, ==, >= or >"));
  CHECK_THAT(failure_of([&] {
               std::filesystem::remove(folder.file("x.index"));
               kept({{"n", "==", "5"}});
             }),
             Contains("compares column \"n\", which is of type int64, with text"));
  CHECK_THAT(failure_of([&] { kept({{"m", "==", 5}}); }), Contains("there is no column \"m\" (it has: n)"));
}

TEST_CASE("Parquet files of an S3 store are read by ranges of their row groups", "[parquet]") {
  const drawn_files files(6);
  s3_server::background server;
  for (const auto& [url, content] : files.store->objects) {
    server.put("b", "d/" + url.substr(url.rfind('/') + 1), bytes::copy(content));
  }
  s3::config_options how;
  const std::string endpoint = server.endpoint();
  how.endpoint = endpoint;
  const s3::client s3(s3::config(how), s3::credentials("test-key", "test-secret"));
  const test::temporary_folder folder;
  const dataset data(s3, "s3://b/d/",
                     {.index = folder.file("x.index"), .format = millrace::parquet({.columns = columns})});
  runtime rt;
  const epochs_options o = small_training();
  CHECK(trained(rt, data, o).samples == files.model(o));
}
