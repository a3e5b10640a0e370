// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/dataset.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/formats/write_shards.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "tests/index/written.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/memory_storage.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/tar/tools.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

TEST_CASE("a dataset takes the index beside the shards of a store, which is the one that reading them makes") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  const plain_samples all = made(200);
  const std::vector<written_shard> shards = write(c, "s3://b/train-{}.tar", all);
  const std::vector<shard_index> indexes = read_indexes(content_of(server, "train.millrace.index"), "index");
  REQUIRE(indexes.size() == shards.size());
  const auto loop = make_event_loop();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const shard_index read =
        block_on(*loop, index_shard(s3::as_storage(c), shard(shards[i].url), shards[i].url.substr(7),
                                    tar_shards({.way = index_way::stream})));
    CHECK((read == indexes[i]));
    CHECK(read.has_checksums());
  }
  const dataset train(c, "s3://b/train-", {.index = "s3://b/train.millrace.index", .make_index = false});
  CHECK(sorted(block_on(*loop, plain_of(epochs(train, {.seed = 1, .epochs = 1, .batch = 4})))) == sorted(all));
  CHECK(train.samples() == all.size());
}

TEST_CASE("a program's own storage takes shards, and epochs() reads them back, with their index and without") {
  const auto store = std::make_shared<const memory_storage>();
  const plain_samples all = made(200);
  plain_samples half = all;
  half.resize(90);
  const std::vector<written_shard> first = write(store, "mem://corpus/train-{}.tar", half);
  REQUIRE(first.size() > 4);
  CHECK(store->find(first[1].url)->etag == first[1].etag);
  write_shards_options o = small();
  CHECK_THROWS_WITH(write(store, "mem://corpus/train-{}.tar", all, o), Contains("nothing is overwritten"));
  o.go_on = true;
  const std::size_t more = write(store, "mem://corpus/train-{}.tar", all, o).size();
  CHECK(store->find("mem://corpus/train.millrace.json")->text.find("\"samples\": 200,") != std::string::npos);

  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  const std::vector<written_shard> again = write(c, "s3://b/train-{}.tar", all);
  CHECK(again.size() <= first.size() + more);
  CHECK((store->find(first[0].url)->text == content_of(server, "train-000000.tar")));

  const std::string prefix = "mem://corpus/train-";
  const auto loop = make_event_loop();
  const auto read = [&](const dataset& train) {
    return sorted(block_on(*loop, plain_of(epochs(train, {.seed = 1, .epochs = 1, .batch = 4}))));
  };
  CHECK(read(dataset(store, prefix, {.index = "mem://corpus/train.millrace.index", .make_index = false})) ==
        sorted(all));
  const captured_stderr log(captured_stderr::into::pipe);  // that the indexes are left out
  const temporary_folder folder;
  CHECK(read(dataset(store, prefix, {.index = folder.file("index")})) == sorted(all));
}

TEST_CASE("a run writes the samples of a dataset to a folder, in other shards, and their fingerprint stays") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  const plain_samples all = made(101);
  write(c, "s3://b/train-{}.tar", all);
  const temporary_folder folder;
  const dataset train(c, "s3://b/train-", {.index = "s3://b/train.millrace.index", .make_index = false});
  runtime rt;
  write_shards_options o = small();
  o.bytes = MiB;
  o.samples = 10;
  std::vector<std::uint64_t> samples;
  auto written = epochs(train, {.seed = 1, .epochs = 1, .batch = 4}) |
                 write_shards(files(), folder.path() + "/{}.tar", o);
  auto run = rt.run(std::move(written));  // the last batch has three empty entries
  for (const written_shard& s : run) samples.push_back(s.samples);
  CHECK(samples.size() == 11);
  CHECK(samples.back() == 1);
  CHECK(sorted(read_back(files(), folder.path() + "/")) == sorted(all));
  const dataset again(files(), folder.path() + "/", {.index = folder.path() + "/millrace.index", .make_index = false});
  CHECK(again.samples() == 101U);
  const auto loop = make_event_loop();
  CHECK(sorted(block_on(*loop, plain_of(epochs(again, {.seed = 2, .epochs = 1, .batch = 4})))) == sorted(all));
  const auto fingerprint = [](const std::string& manifest) {
    const std::size_t at = manifest.find("\"fingerprint\": \"");
    REQUIRE(at != std::string::npos);
    return manifest.substr(at + 16, 32);
  };
  CHECK(fingerprint(content_of(server, "train.millrace.json")) ==
        fingerprint(text_of_file(folder.path() + "/millrace.json")));
}
