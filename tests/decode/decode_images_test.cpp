// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/decode_images.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "tests/device/late_device.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

/// Samples with JPEGs of mixed sizes, of two shards.
std::vector<sample> photos(int n, std::uint64_t seed = 7, std::uint64_t epoch = 0) {
  std::vector<sample> made;
  shard a("s3://b/a.tar");
  shard b("s3://b/b.tar");
  a.seed = b.seed = seed;
  a.epoch = b.epoch = epoch;
  const std::shared_ptr<const shard> from[] = {std::make_shared<const shard>(a), std::make_shared<const shard>(b)};
  for (int i = 0; i < n; ++i) {
    const int width = 20 + 7 * (i % 5);
    const int height = 30 + 5 * (i % 3);
    std::vector<std::uint8_t> pixels;
    for (int p = 0; p < width * height * 3; ++p) pixels.push_back(static_cast<std::uint8_t>(p * 7 / 3 + p / width));
    const auto number = static_cast<std::uint64_t>(i);
    sample s("k" + std::to_string(i), origin(from[i % 2], 512 * number, number / 2));
    s.fields.emplace_back("cls", bytes::copy(std::to_string(i)));
    s.fields.emplace_back("jpg", bytes::copy(examples::encode_jpeg(pixels, width, height)));
    made.push_back(std::move(s));
  }
  return made;
}

const image_options small{.height = 16,
                          .width = 24,
                          .crop = crop::random_resized{},
                          .flip = 0.5,
                          .layout = image_layout::chw,
                          .type = dtype::f16};

/// The images of all batches, one after the other.
std::string contents(const std::vector<host_batch>& batches) {
  std::string all;
  for (const host_batch& b : batches) {
    const tensor_view t = b.field("image");
    all.append(static_cast<const char*>(t.data()), t.bytes());
  }
  return all;
}

std::vector<host_batch> decoded(const std::vector<sample>& samples, const image_options& o, unsigned threads,
                                std::size_t size = 8) {
  testing::virtual_loop loop;
  cpu_pool cores(threads);
  auto batches = from_range(samples) | decode_images(o) | batch(size, {.on = cores});
  return block_on(loop, collect(std::move(batches)));
}

}  // namespace

TEST_CASE("samples with images of mixed sizes become batches of tensors, labels and keys") {
  const std::vector<host_batch> all = decoded(photos(20), small, 2);
  REQUIRE(all.size() == 3);
  CHECK(all[0].field("image").dims() == shape{8, 3, 16, 24});
  CHECK(all[0].field("image").type() == dtype::f16);
  CHECK(all[2].size() == 4);
  CHECK(all[2].keys()[3] == "k19");
  CHECK(all[2].field("label").values<std::int64_t>()[3] == 19);
  CHECK(all[2].tags<origin>()[3].ordinal == 9);
  CHECK(all[2].tags<origin>()[3].url() == "s3://b/b.tar");
}

TEST_CASE("crops and flips are each sample's own: the same for any number of threads, whatever came before it") {
  const std::vector<sample> samples = photos(24);
  const std::string once = contents(decoded(samples, small, 1));
  const bool same_on_three = contents(decoded(samples, small, 3, 5)) == once;
  CHECK(same_on_three);
  const std::size_t one = 3 * 16 * 24 * 2;
  const bool same_alone = contents(decoded({samples[13]}, small, 1)) == once.substr(13 * one, one);
  CHECK(same_alone);
  const std::string next = contents(decoded(photos(24, 7, 1), small, 1));
  int changed = 0;
  for (std::size_t i = 0; i < 24; ++i) changed += next.substr(i * one, one) != once.substr(i * one, one);
  CHECK(changed > 20);
  const bool same_for_another_seed = contents(decoded(photos(24, 8), small, 1)) == once;
  CHECK_FALSE(same_for_another_seed);
}

TEST_CASE("fill_batches writes the same rows, and to_device copies either") {
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const host_device device;
  const image_row_writer writer(small);
  auto filled = from_range(photos(8)) | fill_batches(batch_pool(writer.layout(8), device), writer, {.on = &cores});
  const std::vector<host_batch> made = block_on(loop, collect(std::move(filled)));
  REQUIRE(made.size() == 1);
  CHECK_FALSE(made[0].pinned());  // host_device's memory
  auto copied = from_range(photos(8)) | decode_images(small) | batch(8, {.on = cores}) | to_device(device);
  const auto first = [&]() -> task<std::string> {
    auto b = co_await copied.next();
    const tensor_view t = b->field("image");
    co_return std::string(static_cast<const char*>(t.data()), t.bytes());
  };
  const bool same = block_on(loop, first()) == contents(made);
  CHECK(same);
}

TEST_CASE("batches are soon made in the memory that a device copies them from") {
  testing::virtual_loop loop;
  cpu_pool cores(2);
  std::vector<bool> pinned;
  auto spied = [&pinned](host_batch b) {
    pinned.push_back(b.pinned());
    return b;
  };
  const test::late_device device;
  device.control().after = 1;
  auto copied = from_range(photos(60)) | decode_images(small) | batch(4, {.on = cores}) | map(spied) |
                to_device(device, {.slots = 2});
  const auto drive = [&]() -> task<void> {
    for (;;) {
      auto b = co_await copied.next();
      if (!b) co_return;
    }
  };
  block_on(loop, drive());
  CHECK(device.control().unpinned == 0);
  REQUIRE(pinned.size() == 15);
  CHECK_FALSE(pinned.front());
  CHECK(pinned.back());
  CHECK(std::count(pinned.begin(), pinned.end(), false) <= 6);
}

TEST_CASE("images that cannot be decoded are left out where a policy says so, and leave no hole") {
  std::vector<sample> samples = photos(20);
  for (const std::size_t bad : {0u, 3u, 7u, 15u, 16u, 17u, 18u, 19u}) {
    samples[bad].fields[1].data = bytes::copy("no image");
  }
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const batch_options how{.on = cores, .failures = {.then = on_failure::skip, .limit = 8, .report = false}};
  auto batches = from_range(samples) | decode_images(small) | batch(4, how);
  std::string keys;
  std::string sizes;
  for (const host_batch& b : block_on(loop, collect(std::move(batches)))) {
    sizes += std::to_string(b.size());
    for (const std::string& key : b.keys()) keys += key + " ";
  }
  CHECK(keys == "k1 k2 k4 k5 k6 k8 k9 k10 k11 k12 k13 k14 ");
  CHECK(sizes == "2343");
  batch_options fewer = how;
  fewer.failures.limit = 7;
  auto too_many = from_range(samples) | decode_images(small) | batch(4, fewer);
  CHECK_THROWS_AS(block_on(loop, collect(std::move(too_many))), too_many_failures);
}

TEST_CASE("batches of images may lack the last one; options for images are refused for other items") {
  testing::virtual_loop loop;
  cpu_pool cores(2);
  auto batches = from_range(photos(10)) | decode_images(small) | batch(4, {.last = last_batch::drop, .on = cores});
  CHECK(block_on(loop, collect(std::move(batches))).size() == 2);
  CHECK_THROWS_WITH(from_range(photos(2)) | batch(4, {.on = cores}),
                    "batch: .on and .failures are for items that are written into their batch");
}

TEST_CASE("the image of a sample is known by its content, or named") {
  std::vector<sample> samples = photos(1);
  samples[0].fields[1].extension = "bin";
  CHECK(decoded(samples, small, 1).size() == 1);
  image_options o = small;
  o.field = "bin";
  o.label = "";
  const std::vector<host_batch> named = decoded(samples, o, 1);
  CHECK(named[0].layout().fields().size() == 1);
  o.field = "png";
  CHECK_THROWS_WITH(decoded(samples, o, 1),
                    "s3://b/a.tar at byte 0, k0: the sample has no field \"png\" (it has: cls, bin)");
}

TEST_CASE("of several images of a sample the first is taken, and one line names a sample") {
  std::vector<sample> samples = photos(3);
  for (sample& s : samples) s.fields.emplace_back("depth.png", s.fields[1].data);
  test::captured_stderr heard(test::captured_stderr::into::pipe);
  CHECK(decoded(samples, small, 1).size() == 1);
  CHECK(decoded(samples, small, 1).size() == 1);  // a pipeline for each epoch
  const std::string said = heard.text();
  CHECK(said ==
        "millrace: s3://b/a.tar at byte 0, k0: several fields of the sample are images (jpg, depth.png): the first in "
        "the archive, jpg, is taken here and in samples alike; image_options::field names another\n");
}

TEST_CASE("nothing is said of one image, nor where a field is named") {
  std::vector<sample> samples = photos(2);
  samples[0].fields.emplace_back("txt", bytes::copy("a picture"));
  test::captured_stderr heard(test::captured_stderr::into::pipe);
  CHECK(decoded(samples, small, 1).size() == 1);
  samples[1].fields.emplace_back("depth.png", samples[1].fields[1].data);
  image_options named = small;
  named.field = "jpg";
  CHECK(decoded(samples, named, 1).size() == 1);
  CHECK(heard.text().empty());
}

TEST_CASE("an image that cannot be decoded is named by shard, offset and key") {
  std::vector<sample> samples = photos(3);
  samples[2].fields[1].data = samples[2].fields[1].data.slice(0, 300);
  CHECK_THROWS_WITH(decoded(samples, small, 2), Contains("s3://b/a.tar at byte 1024, k2: the JPEG"));
  samples[2].fields[1].data = bytes::copy("text");
  CHECK_THROWS_WITH(decoded(samples, small, 2),
                    "s3://b/a.tar at byte 1024, k2: no field of the sample is a JPEG, PNG or WebP (it has: cls, jpg)");
  samples[2].fields[1].data =
      bytes::copy(std::string("\0\0\0\x1c"
                              "ftypavif\0\0\0\0",
                              16));
  CHECK_THROWS_WITH(decoded(samples, small, 2), Contains("(it has: cls, jpg, which is an AVIF)"));
}
