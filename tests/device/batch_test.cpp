// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/batch.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <millrace/device/device.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/labelled_image.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using millrace::test::labelled_image;

namespace {

batch_layout images(std::size_t samples) {
  return batch_layout(samples, {{"image", dtype::u8, {2, 2, 3}}, {"label", dtype::i64}, {"box", dtype::f32, {4}}});
}

image grey_2x2(std::uint8_t value) { return image(std::vector<std::uint8_t>(12, value), 2, 2, 3); }

// A user's type, with everything that a sample may carry.
struct clip {
  std::string name;
  std::vector<float> samples;
  bool loud;
};
void collate(const clip& c, sample_writer& out) {
  out.key(c.name);
  out.write("audio", c.samples);
  out.write("loud", c.loud);
  const std::span<std::int16_t> pcm = out.place<std::int16_t>("pcm", {2});
  pcm[0] = 1;
  pcm[1] = static_cast<std::int16_t>(c.samples.empty() ? 0 : c.samples[0]);
  out.tag(std::string("caption of " + c.name));
}

}  // namespace

TEST_CASE("element types", "[device]") {
  CHECK(dtype_of<float> == dtype::f32);
  CHECK(dtype_of<double> == dtype::f64);
  CHECK(dtype_of<unsigned char> == dtype::u8);
  CHECK(dtype_of<signed char> == dtype::i8);
  CHECK(dtype_of<char> == dtype::u8);
  CHECK(dtype_of<long> == dtype_of<long long>);
  CHECK(dtype_of<std::uint16_t> == dtype::u16);
  CHECK(dtype_of<bool> == dtype::boolean);
  CHECK(size_of(dtype::bf16) == 2);
  CHECK(size_of(dtype::f64) == 8);
  CHECK(std::string(name_of(dtype::f64)) == "f64");
  CHECK(std::string(name_of(dtype::bf16)) == "bf16");
}

TEST_CASE("shapes", "[device]") {
  const shape s{224, 224, 3};
  CHECK(s.rank() == 3);
  CHECK(s.elements() == 150528);
  CHECK(s.text() == "224x224x3");
  CHECK(s.with_outer(8).text() == "8x224x224x3");
  CHECK(shape().text() == "scalar");
  CHECK(shape().elements() == 1);
  CHECK(shape{0, 5}.elements() == 0);
  CHECK(s == shape{224, 224, 3});
  CHECK(s != shape{224, 3, 224});
  CHECK(s != shape{224, 224});
  CHECK_THROWS_AS((shape{1, 2, 3, 4, 5, 6, 7, 8, 9}), configuration_error);
  CHECK_THROWS_AS((shape{-1}), configuration_error);
  CHECK_THROWS_AS((shape{std::int64_t(1) << 40, std::int64_t(1) << 40}.elements()), configuration_error);
}

TEST_CASE("a tensor view knows its type", "[device]") {
  std::vector<float> data(6, 1.5f);
  const tensor_view t(data.data(), dtype::f32, {2, 3});
  CHECK(t.as<float>() == data.data());
  CHECK(t.values<const float>().size() == 6);
  CHECK(t.bytes() == 24);
  CHECK_THROWS_WITH(t.as<int>(), Contains("a tensor of f32 was read as i32"));
}

TEST_CASE("the fields of a batch lie aligned after each other", "[device]") {
  const batch_layout l = images(100);
  CHECK(l.offset(0) == 0);
  CHECK(l.offset(1) == 1280);  // 1200 bytes of images
  CHECK(l.offset(2) == 2304);  // 800 bytes of labels after them
  CHECK(l.bytes() == 2304 + 1792);
  CHECK(l.bytes_for(100) == 2304 + 1600);
  CHECK(l.bytes_for(1) == 2304 + 16);
  CHECK(l.bytes_for(0) == 0);
  CHECK(l.find("box") == 2);
  CHECK_THROWS_WITH(l.find("boxes"), Contains("no field named boxes; it has image, label, box"));
  CHECK(l == images(100));
  CHECK_FALSE(l == images(99));
  CHECK_THROWS_WITH(batch_layout(1, {{"a", dtype::u8}, {"a", dtype::u8}}), Contains("two fields named a"));
  CHECK_THROWS_WITH(batch_layout(std::size_t(1) << 60, {{"a", dtype::u8, {1 << 20}}}), Contains("too large"));
  CHECK(batch_layout().bytes() == 0);
}

TEST_CASE("a shape whose bytes do not fit is refused", "[device]") {
  // The number of elements fits into 64 bits, times their size it is 2^64: as a small number it would be a batch with
  // room for nothing, whose rows are taken for long ones.
  const batch_field wraps("x", dtype::f64, {std::int64_t(1) << 61});
  CHECK_THROWS_WITH(wraps.row_bytes(), Contains("too large"));
  CHECK_THROWS_WITH(batch_layout(4, {wraps}), Contains("too large"));
  CHECK_THROWS_AS(batch_layout(0, {wraps}), configuration_error);
  const batch_field fits("x", dtype::u8, {std::int64_t(1) << 61});
  CHECK(fits.row_bytes() == std::size_t(1) << 61);
  CHECK_THROWS_WITH(batch_layout(4, {fits}), Contains("too large"));
  // Before there is a place to write to.
  bool placed = false;
  const auto lay_out = [&placed](int, sample_writer& out) {
    static_cast<void>(out.place<double>("x", {std::int64_t(1) << 61}));
    placed = true;
  };
  CHECK_THROWS_WITH(layout_of(1, 2, lay_out), Contains("too large"));
  CHECK_FALSE(placed);
}

TEST_CASE("a batch is filled row by row, in any order, from many threads", "[device]") {
  batch_pool pool(images(64), host_device());
  batch_builder builder = pool.start();
  CHECK(builder.capacity() == 64);
  std::vector<std::thread> writers;
  for (std::size_t w = 0; w < 4; ++w) {
    writers.emplace_back([&builder, w] {
      for (std::size_t i = 63 - w; i < 64; i -= 4) {
        const batch_row row = builder.row(i);
        for (std::uint8_t& b : row.values<std::uint8_t>("image")) b = static_cast<std::uint8_t>(i);
        row.set("label", static_cast<std::int64_t>(1000 + i));
        for (float& f : row.values<float>("box")) f = static_cast<float>(i) / 2;
        row.key("k" + std::to_string(i));
        row.tag(static_cast<int>(i) * 3);
        row.done();
      }
    });
  }
  for (std::thread& t : writers) t.join();
  const host_batch b = std::move(builder).seal();
  REQUIRE(b.size() == 64);
  CHECK_FALSE(b.pinned());  // ordinary memory: a GPU would not read it directly
  CHECK(byte_size(b) == b.layout().bytes_for(64));
  const tensor_view labels = b.field("label");
  CHECK(labels.dims().text() == "64");
  CHECK(b.field("image").dims().text() == "64x2x2x3");
  REQUIRE(b.tags<int>().size() == 64);
  CHECK(b.tags<long>().empty());
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK(b.field("image").values<std::uint8_t>()[i * 12 + 11] == i);
    CHECK(labels.values<std::int64_t>()[i] == static_cast<std::int64_t>(1000 + i));
    CHECK(b.field("box").values<float>()[i * 4 + 3] == static_cast<float>(i) / 2);
    CHECK(b.keys()[i] == "k" + std::to_string(i));
    CHECK(b.tags<int>()[i] == static_cast<int>(i) * 3);
  }
}

TEST_CASE("rows that were never done are closed up", "[device]") {
  batch_pool pool(images(5));
  batch_builder builder = pool.start();
  for (std::size_t i : {4, 1, 3}) {
    const batch_row row = builder.row(i);
    row.set("label", static_cast<std::int64_t>(i));
    row.key(std::to_string(i));
    row.tag(std::string(1, static_cast<char>('a' + i)));
    if (i != 3) row.done();
  }
  const host_batch b = std::move(builder).seal();
  REQUIRE(b.size() == 2);
  CHECK_FALSE(b.pinned());
  CHECK(b.field("label").values<std::int64_t>()[0] == 1);
  CHECK(b.field("label").values<std::int64_t>()[1] == 4);
  CHECK(b.keys()[1] == "4");
  CHECK(b.tags<std::string>()[0] == "b");
  CHECK(b.tags<std::string>()[1] == "e");
}

TEST_CASE("a row beyond the batch is refused", "[device]") {
  batch_pool pool(images(3));
  const batch_builder builder = pool.start();
  CHECK(builder.row(2).index() == 2);
  CHECK_THROWS_WITH(builder.row(3), "batch_builder::row beyond the batch");
  CHECK_THROWS_AS(builder.row(SIZE_MAX), usage_error);
  CHECK_THROWS_AS(batch_builder().row(0), usage_error);
}

TEST_CASE("a row keeps its memory when all other owners have gone", "[device]") {
  batch_row row;
  {
    batch_pool pool(images(2));
    batch_builder builder = pool.start();
    row = builder.row(1);
  }
  row.set("label", std::int64_t(7));
  row.done();
  CHECK(row.field("label").as<std::int64_t>()[0] == 7);
  CHECK_THROWS_WITH(row.set("box", 1.0f), Contains("field box is not a scalar"));
  CHECK_THROWS_AS(row.set("label", 1.0f), configuration_error);
}

TEST_CASE("the memory of dropped batches is used again", "[device]") {
  batch_pool pool(images(8), host_device());
  void* first = nullptr;
  {
    const host_batch b = pool.start().seal();
    CHECK(b.size() == 0);
    CHECK(b.bytes() == 0);
    first = b.data();
    CHECK(pool.live() == 1);
  }
  CHECK(pool.live() == 0);
  const host_batch again = pool.start().seal();
  CHECK(again.data() == first);
  CHECK(pool.peak() == 1);
}

TEST_CASE("one function lays out a user's type", "[device]") {
  std::vector<clip> clips;
  clips.push_back({"a", {1, 2, 3}, true});
  clips.push_back({"b", {4, 5, 6}, false});
  batch_pool pool(layout_of(clips[0], 3));
  CHECK(pool.layout().fields()[0].text() == "audio f32 3");
  CHECK(pool.layout().fields()[1].text() == "loud bool scalar");
  CHECK(pool.layout().fields()[2].text() == "pcm i16 2");
  const host_batch b = collate_batch(clips, pool);
  REQUIRE(b.size() == 2);
  CHECK(b.field("audio").dims().text() == "2x3");
  CHECK(b.field("audio").values<float>()[4] == 5);
  CHECK(b.field("loud").values<bool>()[0]);
  CHECK_FALSE(b.field("loud").values<bool>()[1]);
  CHECK(b.field("pcm").values<std::int16_t>()[3] == 4);
  CHECK(b.keys()[1] == "b");
  CHECK(b.tags<std::string>()[1] == "caption of b");
}

TEST_CASE("the places of a sample are all there until its end", "[device]") {
  // Filled only after all places are known. Two of one size, which memory used twice would put at one address, and one
  // that is larger.
  int calls = 0;
  const auto lay_out = [&calls](int n, sample_writer& out) {
    ++calls;
    const std::span<std::uint8_t> image = out.place<std::uint8_t>("image", {16});
    const std::span<float> mask = out.place<float>("mask", {4});
    const std::span<double> depth = out.place<double>("depth", {4096});
    CHECK(static_cast<void*>(image.data()) != static_cast<void*>(mask.data()));
    std::fill(image.begin(), image.end(), static_cast<std::uint8_t>(n));
    std::fill(mask.begin(), mask.end(), static_cast<float>(n) + 0.5f);
    std::fill(depth.begin(), depth.end(), n + 0.25);
    CHECK(std::count(image.begin(), image.end(), n) == 16);
    CHECK(std::count(mask.begin(), mask.end(), static_cast<float>(n) + 0.5f) == 4);
    CHECK(std::count(depth.begin(), depth.end(), n + 0.25) == 4096);
  };
  const std::vector<int> items{1, 2};
  const batch_layout layout = layout_of(items.front(), 2, lay_out);
  CHECK(calls == 1);
  CHECK(layout.fields()[2].text() == "depth f64 4096");
  batch_pool pool(layout);
  const host_batch b = collate_batch(items, pool, lay_out);
  CHECK(b.field("image").values<std::uint8_t>()[16] == 2);
  CHECK(b.field("mask").values<float>()[3] == 1.5f);
  CHECK(b.field("depth").values<double>()[4096] == 2.25);
}

TEST_CASE("a sample unlike the first is an error with its key", "[device]") {
  std::vector<clip> clips;
  clips.push_back({"a", {1, 2, 3}, true});
  clips.push_back({"odd one", {4, 5}, false});
  batch_pool pool(layout_of(clips[0], 2));
  CHECK_THROWS_AS(collate_batch(clips, pool), decode_error);
  CHECK_THROWS_WITH(collate_batch(clips, pool),
                    Contains("odd one: field audio f32 2 where the first sample had audio f32 3") &&
                        Contains("written by padded() or ragged()"));
  clips.resize(1);
  clips.push_back({"b", {1, 2, 3}, true});
  clips.push_back({"c", {1, 2, 3}, true});
  CHECK_THROWS_WITH(collate_batch(clips, pool), Contains("a batch of 3 samples came where the largest has 2"));
  const auto fewer = [](const clip& c, sample_writer& out) {
    out.key(c.name);
    out.write("audio", c.samples);
  };
  clips.resize(1);
  CHECK_THROWS_WITH(collate_batch(clips, pool, fewer), Contains("a: field loud is missing"));
  const auto more = [](const clip& c, sample_writer& out) {
    collate(c, out);
    out.write("extra", 1);
  };
  CHECK_THROWS_WITH(collate_batch(clips, pool, more), Contains("field extra is not a field of the first sample"));
}

TEST_CASE("labelled images carry their origin into the batch and into errors", "[device]") {
  const auto from = std::make_shared<const shard>("https://user:secret@host/a.tar?sig=1", 5000, "\"tag\"");
  std::vector<labelled_image> v;
  for (std::uint8_t i = 0; i < 3; ++i) {
    const std::string key = "img" + std::to_string(i);
    v.emplace_back(sample(key, origin(from, 512u * i, i)), grey_2x2(i), 100 + i);
  }
  batch_pool pool(layout_of(v[0], 3));
  {
    const host_batch b = collate_batch(v, pool);
    REQUIRE(b.tags<origin>().size() == 3);
    CHECK(b.tags<origin>()[2].offset == 1024);
    CHECK(b.tags<origin>()[2].ordinal == 2);
    CHECK(b.tags<origin>()[2].from->etag == "\"tag\"");
    CHECK(b.tags<origin>()[2].from == from);
  }
  v[2].height = 1;
  v[2].width = 4;
  CHECK_THROWS_WITH(collate_batch(v, pool),
                    "https://host/a.tar at byte 1024, img2: field image u8 1x4x3 where the first sample had image u8 "
                    "2x2x3: what differs in length is written by padded() or ragged()");
  v[2].pixels = std::vector<std::uint8_t>(11);
  CHECK_THROWS_WITH(collate_batch(v, pool), "https://host/a.tar at byte 1024, img2: an image of 1x4x3 has 11 bytes");
  v.erase(v.begin(), v.begin() + 2);
  v[0] = labelled_image(sample("made", origin()), grey_2x2(0), 1);
  CHECK(collate_batch(v, pool).tags<origin>().empty());
}

TEST_CASE("an origin given as a tag is what errors name", "[device]") {
  const auto from = std::make_shared<const shard>("s3://b/a.tar");
  const std::vector<int> items{1, 2};
  const auto lay_out = [&](int n, sample_writer& out) {
    out.key("k" + std::to_string(n));
    out.tag(origin(from, 512u * static_cast<unsigned>(n), 0));
    out.write("one", std::vector<int>(static_cast<std::size_t>(n)));
  };
  batch_pool pool(layout_of(items[0], 2, lay_out));
  CHECK_THROWS_WITH(collate_batch(items, pool, lay_out), Contains("s3://b/a.tar at byte 1024, k2: field one"));
  const auto missing = [&](int n, sample_writer& out) { out.tag(origin(from, 512u * static_cast<unsigned>(n), 0)); };
  CHECK_THROWS_WITH(collate_batch(items, pool, missing), Contains("s3://b/a.tar at byte 512: field one is missing"));
  const auto more = [&](int n, sample_writer& out) {
    lay_out(1, out);
    out.write("two", n);
  };
  CHECK_THROWS_WITH(collate_batch(items, pool, more),
                    Contains("s3://b/a.tar at byte 512, k1: field two is not a field"));
  const auto foreign = [&](int n, sample_writer& out) {
    out.key("k" + std::to_string(n));
    out.tag(origin(from, 512u * static_cast<unsigned>(n), 0));
    if (n == 2) static_cast<void>(std::stoi("cat"));
    out.write("one", n);
  };
  try {
    collate_batch(items, foreign);
    FAIL("no error");
  } catch (const item_error& e) {
    CHECK(e.what() == std::string("s3://b/a.tar at byte 1024, k2: stoi"));
    CHECK_THROWS_AS(std::rethrow_if_nested(e), std::invalid_argument);
  }
}

TEST_CASE("labelled images are ready made", "[device]") {
  std::vector<labelled_image> v;
  for (std::uint8_t i = 0; i < 3; ++i) v.emplace_back(sample("img", origin()), grey_2x2(i), 100 + i);
  batch_pool pool(layout_of(v[0], 3));
  const host_batch b = collate_batch(v, pool);
  CHECK(b.field("image").dims().text() == "3x2x2x3");
  CHECK(b.field("image").values<std::uint8_t>()[35] == 2);
  CHECK(b.field("label").values<std::int64_t>()[2] == 102);
  v[1].pixels = std::vector<std::uint8_t>(11);
  CHECK_THROWS_WITH(collate_batch(v, pool), Contains("an image of 2x2x3 has 11 bytes"));
}
