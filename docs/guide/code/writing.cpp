// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/writing.md.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/formats/write_shards.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

namespace mill = millrace;

namespace {

// begin shard
std::string shard_of(int first, int last) {
  std::string tar;
  mill::tar::writer archive(tar);  // appends to the string
  for (int i = first; i < last; ++i) {
    const std::string key = "train/" + std::to_string(i);  // members with one key are one sample
    archive.add(key + ".txt", "sample " + std::to_string(i));
    archive.add(key + ".cls", std::to_string(i % 10));
  }
  archive.finish();  // the end-of-archive block
  return tar;
}
// end shard

// begin stream
mill::async_generator<mill::bytes> archive_of(int samples) {
  std::string text;
  mill::tar::writer archive(text);
  for (int i = 0; i < samples; ++i) {
    archive.add(std::to_string(i) + ".txt", std::string(100000, 'x'));
    mill::bytes piece = mill::bytes::copy(text);
    text.clear();
    co_yield mill::give(piece);
  }
  archive.finish();
  mill::bytes end = mill::bytes::copy(text);
  co_yield mill::give(end);
}
// end stream

// begin samples
mill::async_generator<mill::sample> photos(int count) {
  for (int i = 0; i < count; ++i) {
    mill::sample s("photo/" + std::to_string(i), mill::origin());
    s.fields.emplace_back("jpg", mill::bytes::copy(std::string(20000, 'x')));
    s.fields.emplace_back("cls", mill::bytes::copy(std::to_string(i % 10)));
    co_yield mill::give(s);
  }
}
// end samples

}  // namespace

TEST_CASE("the guide's shards are stored", "[guide]") {
  mill::s3_server::background server;
  mill::s3::config_options o;
  const std::string endpoint = server.endpoint();
  o.endpoint = endpoint;
  const mill::s3::client s3(mill::s3::config(o), mill::s3::credentials("test-key", "test-secret"));
  // begin put
  const auto loop = mill::make_event_loop();
  block_on(*loop, s3.create_bucket("s3://corpus"));
  block_on(*loop, s3.put("s3://corpus/train-000.tar", mill::bytes::copy(shard_of(0, 100)), "application/x-tar"));
  // end put
  // begin put_stream
  auto stored = block_on(*loop, s3.put("s3://corpus/large.tar", archive_of(100), {.part = 5 * mill::MiB, .parts = 4}));
  // end put_stream
  CHECK(stored.size == 100 * (512 + 100352) + 1024);
  std::vector<float> weights(3 * 1024 * 1024, 0.5f);
  // begin checkpoint
  const std::string url = "s3://corpus/step-1000";
  const std::span<std::byte> memory = std::as_writable_bytes(std::span(weights));  // of a tensor, 300 MB say
  block_on(*loop, s3.put(url, mill::bytes::copy({reinterpret_cast<const char*>(memory.data()), memory.size()})));
  const std::size_t size = block_on(*loop, s3.read(url, memory));  // straight into it
  block_on(*loop, s3.remove(url));
  // end checkpoint
  CHECK(size == memory.size());
  CHECK(std::count(weights.begin(), weights.end(), 0.5f) == 3 * 1024 * 1024);
  CHECK(block_on(*loop, s3.head("s3://corpus/train-000.tar")).size == shard_of(0, 100).size());
}

TEST_CASE("the guide's samples are written to shards", "[guide]") {
  mill::s3_server::background server;
  mill::s3::config_options o;
  const std::string endpoint = server.endpoint();
  o.endpoint = endpoint;
  const mill::s3::client s3(mill::s3::config(o), mill::s3::credentials("test-key", "test-secret"));
  server.objects().create_bucket("corpus");
  std::uint64_t samples = 0;
  // begin write_shards
  mill::runtime rt;
  auto written =
      mill::stream(photos(1000)) | mill::write_shards(s3, "s3://corpus/train-{}.tar", {.bytes = 8 * mill::MiB});
  auto run = rt.run(std::move(written));
  for (const mill::written_shard& shard : run) {
    std::cout << shard.url << ": " << shard.samples << " samples, " << shard.bytes << " bytes\n";
    samples += shard.samples;
  }
  // end write_shards
  CHECK(samples == 1000);
  // begin written
  const mill::dataset train(s3, "s3://corpus/train-", {.index = "s3://corpus/train.millrace.index"});
  // end written
  auto again = rt.run(mill::epochs(train, {.seed = 1, .epochs = 1, .batch = 10}));
  std::uint64_t read = 0;
  for (const mill::sample& s : again) read += s.weight() != 0 ? 1 : 0;
  CHECK(read == 1000);
  // begin go_on
  mill::write_shards_options how;
  how.bytes = 8 * mill::MiB;
  how.go_on = true;
  auto rest = rt.run(mill::stream(photos(1200)) | mill::write_shards(s3, "s3://corpus/train-{}.tar", how));
  // end go_on
  for (const mill::written_shard& shard : rest) samples += shard.samples;
  CHECK(samples == 1200);
}

TEST_CASE("the guide's archive goes to a file in pieces", "[guide]") {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "millrace-guide-writing.tar";
  {
    // begin sink
    std::ofstream file(path, std::ios::binary);
    mill::tar::writer archive([&](std::string_view piece) { file.write(piece.data(), std::streamsize(piece.size())); });
    archive.begin("0.bin", 6);  // a body of known size, in any number of pieces
    archive.write("abc");
    archive.write("def");
    archive.end();
    archive.finish();
    // end sink
  }
  std::ifstream back(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(back)), std::istreambuf_iterator<char>());
  std::filesystem::remove(path);
  CHECK(text.size() == 512 + 512 + 1024);
}
