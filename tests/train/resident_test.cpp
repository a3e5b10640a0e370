// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/resident_storage.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::tar_dataset;

// Data that stays in memory after its first epoch.
namespace {

class training {
 public:
  std::vector<std::string> samples, states;
  std::vector<std::uint64_t> requests;  // of the store, after each epoch
};

const std::vector<std::size_t> shard_sizes{17, 3, 30, 8};

training trained(runtime& rt, const tar_dataset& data, const std::shared_ptr<const storage>& store,
                 test::settings options) {
  training out;
  options.prefix = "mem:";
  // Requests are counted as batches are taken, so few are made ahead.
  auto run = rt.run(test::train_on(data.indexes, store, options) | batch(2), {.prefetch = 2});
  for (const std::vector<sample>& b : run) {
    for (const sample& s : b) out.samples.push_back(s.key + (s.weight() == 0 ? "-" : std::string(s["bin"].view())));
    out.states.push_back(run.state());
    if (b.back().mark.last) out.requests.push_back(data.store->requests);
  }
  return out;
}

}  // namespace

TEST_CASE("what the first epoch has read is not read again, and nothing else changes", "[resident]") {
  const tar_dataset data(shard_sizes, 3000);
  runtime rt;
  const bool tight = GENERATE(false, true);  // so few bytes under way that slices are read in pieces
  test::settings options{.seed = 7, .epochs = 4, .batch = 2, .tracks = 12, .slice = 4, .ahead = 1};
  if (tight) options.bytes = 1 << 16;
  const training without = trained(rt, data, data.store, options);
  CHECK(without.requests[3] > without.requests[2]);
  data.store->requests = 0;
  const auto store = resident(data.store, {.bytes = 1 << 20});
  const training with = trained(rt, data, store, options);
  CHECK(with.samples == without.samples);
  CHECK(with.states == without.states);
  REQUIRE(with.requests.size() == 4);
  CHECK(with.requests[0] > 0);
  CHECK(with.requests[3] == with.requests[1]);  // the second one began before the first had ended
  CHECK(store->kept() > 0);
  CHECK(store->kept() <= data.store->read_bytes);
  SECTION("the next run reads nothing, and resumes as it would") {
    options.resume = without.states[without.states.size() / 2];
    const training rest = trained(rt, data, store, options);
    CHECK(data.store->requests == with.requests[3]);
    CHECK(rest.samples ==
          std::vector<std::string>(without.samples.end() - std::ptrdiff_t(rest.samples.size()), without.samples.end()));
    CHECK(rest.states.size() == without.states.size() - without.states.size() / 2 - 1);
  }
  SECTION("unless forget() is called") {
    store->forget();
    CHECK(store->kept() == 0);
    trained(rt, data, store, options);
    CHECK(data.store->requests > with.requests[3]);
  }
}

TEST_CASE("what does not fit is read every time, and that is said once", "[resident]") {
  const tar_dataset data(shard_sizes, 3000);
  const test::settings options{.seed = 7, .epochs = 3, .batch = 2, .tracks = 12, .slice = 4, .ahead = 1};
  test::captured_stderr said(test::captured_stderr::into::pipe);
  runtime rt;
  const training without = trained(rt, data, data.store, options);
  data.store->requests = 0;
  const auto store = resident(data.store, {.bytes = 20000});
  const training with = trained(rt, data, store, options);
  CHECK(with.samples == without.samples);
  CHECK(with.states == without.states);
  CHECK(with.requests[2] > with.requests[1]);
  CHECK(with.requests[2] - with.requests[1] < without.requests[1] - without.requests[0]);
  CHECK(store->kept() <= 20000);
  const std::string text = said.text();
  const std::size_t first =
      text.find("resident: 20.0 kB are full: what is beyond is read from the store in every epoch");
  INFO(text);
  CHECK(first != std::string::npos);
  CHECK(text.find("are full", first + 60) == std::string::npos);
}

TEST_CASE("any ranges of an object are those of the object", "[resident]") {
  auto inner = std::make_shared<test::dataset_store>();
  std::string& content = inner->objects["mem:a"];
  rng random(GENERATE(1u, 2u, 3u));
  for (int i = 0; i < 5000; ++i) content += static_cast<char>(random.below(256));
  const auto store = resident(std::shared_ptr<const storage>(inner), {.bytes = 1 << 20});
  testing::virtual_loop loop;
  const shard object("mem:a", random.below(2) == 0 ? std::optional<std::uint64_t>(content.size()) : std::nullopt);
  for (int i = 0; i < 400; ++i) {
    const std::size_t offset = random.below(5200), length = 1 + random.below(1 + random.below(2000));
    const storage::part p = block_on(loop, store->read(object, {}, offset, length, slab_pool(4096)));
    const std::string expected = offset >= content.size() ? std::string() : content.substr(offset, length);
    REQUIRE(p.data.view() == expected);
    REQUIRE(p.total == content.size());
  }
  const auto all = [&] {
    std::string text;
    for (const std::uint64_t at : {std::uint64_t(0), std::uint64_t(4096)}) {
      text += block_on(loop, store->read(object, {}, at, 4096, slab_pool(4096))).data.view();
    }
    return text;
  };
  CHECK(all() == content);
  CHECK(store->kept() == content.size());
  const std::uint64_t requests = inner->requests;
  CHECK(all() == content);
  CHECK(inner->requests == requests);
}

TEST_CASE("what pads a member of an archive is kept with it", "[resident]") {
  auto inner = std::make_shared<test::dataset_store>();
  inner->objects["mem:a"] = std::string(2000, 'x');
  const auto store = resident(std::shared_ptr<const storage>(inner), {.bytes = 1 << 20});
  testing::virtual_loop loop;
  const auto read = [&](std::uint64_t offset, std::size_t length) {
    const shard object("mem:a", 2000);
    return block_on(loop, store->read(object, {}, offset, length, slab_pool(4096))).data.size();
  };
  CHECK(read(0, 700) == 700);
  CHECK(read(1024, 600) == 600);
  CHECK(read(0, 1624) == 1624);
  CHECK(inner->requests == 2);
  CHECK(read(1000, 1000) == 1000);  // the object ends within a block
  CHECK(inner->requests == 3);
}

TEST_CASE("an object of another version is read anew", "[resident]") {
  auto inner = std::make_shared<test::dataset_store>();
  inner->objects["mem:a"] = "first";
  const auto store = resident(std::shared_ptr<const storage>(inner), {.bytes = 100});
  testing::virtual_loop loop;
  const auto read = [&](const char* etag) {
    return std::string(block_on(loop, store->read(shard("mem:a"), etag, 0, 100, slab_pool(4096))).data.view());
  };
  CHECK(read("") == "first");
  inner->objects["mem:a"] = "second";
  inner->etag = "\"v2\"";
  CHECK(read("") == "first");  // it is the first epoch that is kept
  CHECK(read("\"v2\"") == "second");
  CHECK(store->kept() == 6);
  CHECK_THROWS_AS(read("\"v1\""), changed_error);
}

TEST_CASE("a memory budget counts what is kept", "[resident]") {
  const tar_dataset data(shard_sizes, 300);
  const auto store = resident(data.store, {.bytes = 1 << 20});
  const test::settings options{.batch = 2, .tracks = 12, .slice = 4, .prefix = "mem:", .bytes = 1 << 16};
  CHECK(test::train_on(data.indexes, store, options).bounds().back().bytes == (1 << 20) + (1 << 16));
  CHECK(test::train_on(data.indexes, hedged(store), options).bounds().back().bytes == (1 << 20) + (1 << 16));
  CHECK(test::train_on(data.indexes, stores(store), options).bounds().back().bytes == (1 << 20) + (1 << 16));
  fetch_options how;
  const auto names = [] { return from_range(std::vector<shard>{shard("mem:100.tar")}); };
  CHECK((names() | fetch(store, how)).bounds().back().bytes ==
        (1 << 20) + (names() | fetch(std::shared_ptr<const storage>(data.store), how)).bounds().back().bytes);
  CHECK_THROWS_WITH(resident(data.store, {}), Contains("resident() needs .bytes"));
}
