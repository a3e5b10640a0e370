// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/normalise_images.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/decode/decode_images.hpp>
#include <millrace/decode/write_image.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

constexpr normalise_options imagenet{.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}};

std::vector<sample> photos(int n) {
  shard s("s3://b/a.tar");
  s.seed = 7;
  const auto from = std::make_shared<const shard>(s);
  std::vector<sample> made;
  for (int i = 0; i < n; ++i) {
    const int width = 60 + 17 * (i % 5);
    const int height = 50 + 13 * (i % 4);
    std::vector<std::uint8_t> pixels;
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        for (int c = 0; c < 3; ++c) {
          pixels.push_back(static_cast<std::uint8_t>(128 + 100 * std::sin(0.11 * (c + 1) * x + 0.07 * y + i)));
        }
      }
    }
    const auto number = static_cast<std::uint64_t>(i);
    sample one("k" + std::to_string(i), origin(from, 512 * number, number));
    one.fields.emplace_back("cls", bytes::copy(std::to_string(i)));
    one.fields.emplace_back("jpg", bytes::copy(examples::encode_jpeg(pixels, width, height)));
    made.push_back(std::move(one));
  }
  return made;
}

template <class Items>
device_batch one_batch(Items items) {
  testing::virtual_loop loop;
  const std::size_t n = items.size();
  std::vector<device_batch> all =
      block_on(loop, collect(from_range(std::move(items)) | batch(n) | to_device(host_device())));
  REQUIRE(all.size() == 1);
  return std::move(all[0]);
}

device_batch decoded(const image_options& o, int n) {
  testing::virtual_loop loop;
  cpu_pool pool(2);
  std::vector<device_batch> all =
      block_on(loop, collect(from_range(photos(n)) | decode_images(o) |
                             batch(static_cast<std::size_t>(n), {.on = &pool}) | to_device(host_device())));
  REQUIRE(all.size() == 1);
  return std::move(all[0]);
}

std::string contents(const tensor_view& t) { return std::string(static_cast<const char*>(t.data()), t.bytes()); }

std::string normalised(const device_batch& b, dtype type, const shape& dims, const normalise_options& how = imagenet) {
  std::string result(dims.elements() * size_of(type), '?');
  normalise_images(b, "image", tensor_view(result.data(), type, dims), how);
  return result;
}

/// A decoded image and what is taken of it.
class photo {
 public:
  photo(std::string k, image i, const image_box& b, bool f)
      : key(std::move(k)), pixels(std::move(i)), box(b), flipped(f) {}
  std::string key;
  image pixels;
  image_box box;
  bool flipped;
};
void collate(const photo& p, sample_writer& out) {
  out.key(p.key);
  write_image(out, "image", p.pixels, p.box, p.flipped);
}

/// Whatever a program writes by itself.
class raw {
 public:
  raw(std::size_t n, const image_part& p) : pixels(n), part(p) {}
  std::vector<std::uint8_t> pixels;
  image_part part;
};
void collate(const raw& r, sample_writer& out) {
  out.key("bad");
  out.tag(origin(std::make_shared<const shard>("s3://b/a.tar"), 512, 1));
  out.ragged("image", r.pixels);
  const auto bytes = std::bit_cast<std::array<std::uint8_t, sizeof(image_part)>>(r.part);
  out.write("image_parts", std::span<const std::uint8_t>(bytes));
}

}  // namespace

TEST_CASE("decoded images are normalised as decode_images() does, to the bit", "[normalise]") {
  image_options bytes_of{.height = 16, .width = 24, .crop = crop::random_resized{}, .flip = 0.5};
  const device_batch b = decoded(bytes_of, 9);
  for (const dtype type : {dtype::f16, dtype::bf16, dtype::f32}) {
    INFO(name_of(type));
    image_options o = bytes_of;
    o.layout = image_layout::chw;
    o.type = type;
    o.mean = imagenet.mean;
    o.std = imagenet.std;
    CHECK(normalised(b, type, {9, 3, 16, 24}) == contents(decoded(o, 9).field("image")));
  }
}

TEST_CASE("parts of the result's size are taken pixel by pixel", "[normalise]") {
  const image_decoder decoder(image_options{.height = 1, .width = 1});
  std::vector<photo> all;
  for (const sample& s : photos(8)) {
    image i = decoder.whole(s["jpg"]);
    const int left = static_cast<int>(all.size()) * 3;
    const int top = i.height - 20;
    all.emplace_back(s.key, std::move(i), image_box(left, top, left + 30, top + 20), all.size() % 2 == 1);
  }
  std::vector<float> wanted;
  for (const photo& p : all) {
    for (std::size_t c = 0; c < 3; ++c) {
      for (int y = 0; y < 20; ++y) {
        for (int x = 0; x < 30; ++x) {
          const int u = static_cast<int>(p.box.left) + (p.flipped ? 29 - x : x);
          const int v = static_cast<int>(p.box.top) + y;
          const auto at = static_cast<std::size_t>((v * p.pixels.width + u) * 3);
          wanted.push_back((static_cast<float>(p.pixels.pixels.data()[at + c]) / 255.0f - imagenet.mean[c]) /
                           imagenet.std[c]);
        }
      }
    }
  }
  const device_batch b = one_batch(std::move(all));
  const std::string got = normalised(b, dtype::f32, {8, 3, 20, 30});
  CHECK(std::memcmp(got.data(), wanted.data(), got.size()) == 0);
}

TEST_CASE("parts of other sizes are resized as decode_images() does", "[normalise]") {
  const image_options o{.height = 16,
                        .width = 24,
                        .crop = crop::random_resized{},
                        .flip = 0.5,
                        .layout = image_layout::chw,
                        .type = dtype::f32,
                        .reduced_jpegs = false};
  const image_decoder decoder(o);
  std::vector<photo> all;
  for (const sample& s : photos(20)) {
    image i = decoder.whole(s["jpg"]);
    sample_rng numbers = s.random(purpose::augment);  // the same draws as in decode_images()
    const image_box box = o.crop.box(i.width, i.height, o.width, o.height, numbers);
    const bool flipped = numbers.uniform() < o.flip;
    all.emplace_back(s.key, std::move(i), box, flipped);
  }
  const std::string got = normalised(one_batch(std::move(all)), dtype::f32, {20, 3, 16, 24}, {});
  const std::string wanted = contents(decoded(o, 20).field("image"));
  REQUIRE(got.size() == wanted.size());
  double sum = 0;
  double most = 0;
  for (std::size_t at = 0; at < got.size(); at += sizeof(float)) {
    float a = 0;
    float b = 0;
    std::memcpy(&a, got.data() + at, sizeof a);
    std::memcpy(&b, wanted.data() + at, sizeof b);
    sum += std::abs(static_cast<double>(a - b)) * 255;
    most = std::max(most, std::abs(static_cast<double>(a - b)) * 255);
  }
  // The host rounds to 8 bits.
  CHECK(sum / static_cast<double>(got.size() / sizeof(float)) < 0.4);
  CHECK(most < 1);
}

TEST_CASE("a row that only fills up becomes zeros", "[normalise]") {
  std::vector<raw> all;
  all.emplace_back(0, image_part());
  const std::string got = normalised(one_batch(std::move(all)), dtype::f32, {1, 3, 2, 2});
  CHECK(got == std::string(got.size(), '\0'));
}

TEST_CASE("a part or an image beyond its bytes is an error that names the sample", "[normalise]") {
  const auto reason = [](std::size_t bytes, const image_part& p) {
    std::vector<raw> all;
    all.emplace_back(bytes, p);
    const device_batch b = one_batch(std::move(all));
    std::string text = "none";
    try {
      normalised(b, dtype::f32, {1, 3, 2, 2});
    } catch (const decode_error& e) {
      text = e.what();
    }
    return text;
  };
  const image_part good{.height = 4, .width = 5, .stride = 16, .right = 5, .bottom = 4};
  CHECK(reason(63, good) == "none");
  CHECK(reason(62, good) ==
        "s3://b/a.tar at byte 512, bad: an image of 4x5x3 with rows of 16 bytes is not in its 62 bytes");
  for (const auto& change : std::vector<std::pair<const char*, void (*)(image_part&)>>{
           {"not in its", [](image_part& p) { p.height = -1; }},
           {"not in its", [](image_part& p) { p.width = 0; }},
           {"not in its", [](image_part& p) { p.stride = 14; }},
           {"not in its", [](image_part& p) { p.height = 0x7fffffff; }},
           {"not inside", [](image_part& p) { p.left = -1; }},
           {"not inside", [](image_part& p) { p.left = 5; }},
           {"not inside", [](image_part& p) { p.bottom = 4.5f; }},
           {"not inside", [](image_part& p) { p.top = std::nanf(""); }}}) {
    image_part p = good;
    change.second(p);
    CHECK_THAT(reason(63, p), Contains(change.first));
  }
}

TEST_CASE("images are normalised into tensors of the right shape only", "[normalise]") {
  const device_batch b = decoded({.height = 4, .width = 6}, 2);
  for (const shape& dims : {shape{1, 3, 4, 6}, shape{2, 4, 6, 3}, shape{2, 3, 0, 6}, shape{6, 4, 6}}) {
    CHECK_THROWS_WITH(normalised(b, dtype::f32, dims), Contains("2x3x height x width of f16, bf16 or f32"));
  }
  CHECK_THROWS_WITH(normalised(b, dtype::u8, {2, 3, 4, 6}), Contains("u8 2x3x4x6"));
  CHECK_THROWS_WITH(normalised(b, dtype::f32, {2, 3, 4, 6}, {.std = {1, 0, 1}}), Contains("std"));
  std::string result(2 * 3 * 4 * 6 * 4, '?');
  CHECK_THROWS_WITH(normalise_images(b, "label", tensor_view(result.data(), dtype::f32, {2, 3, 4, 6})),
                    Contains("the batch has label i64"));
}

TEST_CASE("an image is written as what it says it is", "[normalise]") {
  const auto refused = [](int channels, std::size_t bytes, const image_box& box) {
    std::vector<photo> all;
    all.emplace_back("bad", image(std::vector<std::uint8_t>(bytes), 4, 5, channels), box, false);
    return [all] { collate_batch(all); };
  };
  CHECK_NOTHROW(refused(3, 60, image_box(0, 0, 5, 4))());
  CHECK_THROWS_WITH(refused(1, 20, image_box(0, 0, 5, 4))(), Contains("4x5x1 with 20 bytes"));
  CHECK_THROWS_WITH(refused(3, 59, image_box(0, 0, 5, 4))(), Contains("4x5x3 with 59 bytes"));
  CHECK_THROWS_WITH(refused(3, 60, image_box(0, 0, 5.5, 4))(), Contains("not inside"));
  CHECK_THROWS_WITH(refused(3, 60, image_box(2, 2, 2, 4))(), Contains("not inside"));
}
