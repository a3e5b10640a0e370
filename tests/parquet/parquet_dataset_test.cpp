// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Parquet files as a dataset: the order, resumes, what is read, and damage.

#include <millrace/parquet.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/sample_order.hpp>
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
