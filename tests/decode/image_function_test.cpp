// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/decode_images.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/decode/augment.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

std::vector<sample> photos(int n) {
  std::vector<sample> made;
  const auto from = std::make_shared<const shard>("s3://b/a.tar");
  for (int i = 0; i < n; ++i) {
    const int width = 20 + 7 * (i % 5);
    std::vector<std::uint8_t> pixel_values;
    for (int p = 0; p < width * 30 * 3; ++p) pixel_values.push_back(static_cast<std::uint8_t>(p * 7 / 3 + p / width));
    const auto number = static_cast<std::uint64_t>(i);
    sample s("k" + std::to_string(i), origin(from, 512 * number, number));
    s.fields.emplace_back("cls", bytes::copy(std::to_string(i)));
    s.fields.emplace_back("jpg", bytes::copy(examples::encode_jpeg(pixel_values, width, 30)));
    made.push_back(std::move(s));
  }
  return made;
}

template <class Stage>
std::vector<host_batch> batches_of(const std::vector<sample>& samples, Stage stage, unsigned threads = 2) {
  testing::virtual_loop loop;
  cpu_pool cores(threads);
  auto batches = from_range(samples) | std::move(stage) | batch(4, {.on = cores});
  return block_on(loop, collect(std::move(batches)));
}

std::string contents(const std::vector<host_batch>& batches) {
  std::string all;
  for (const host_batch& b : batches) {
    const tensor_view t = b.field("image");
    all.append(static_cast<const char*>(t.data()), t.bytes());
  }
  return all;
}

/// Of any type, as numbers.
std::vector<double> values_of(const tensor_view& t) {
  std::vector<double> values;
  for (std::size_t i = 0; i < t.elements(); ++i) {
    if (t.type() == dtype::u8) values.push_back(static_cast<const std::uint8_t*>(t.data())[i]);
    if (t.type() == dtype::f32) values.push_back(static_cast<double>(static_cast<const float*>(t.data())[i]));
    if (t.type() != dtype::f16 && t.type() != dtype::bf16) continue;
    const std::uint16_t bits = static_cast<const std::uint16_t*>(t.data())[i];
    if (t.type() == dtype::bf16) {
      values.push_back(static_cast<double>(__builtin_bit_cast(float, std::uint32_t(bits) << 16)));
    } else {
      const int exponent = bits >> 10 & 31;
      const double size = std::ldexp((exponent == 0 ? 0 : 1024) + (bits & 1023), std::max(exponent, 1) - 25);
      values.push_back((bits & 0x8000) != 0 ? -size : size);
    }
  }
  return values;
}

const auto nothing = [](const pixels<float>&, sample_rng&) {};

}  // namespace

TEST_CASE("a function that changes nothing leaves the images as they are without it, for any type and layout") {
  for (const dtype type : {dtype::u8, dtype::f16, dtype::bf16, dtype::f32}) {
    for (const image_layout layout : {image_layout::hwc, image_layout::chw}) {
      image_options o{.height = 16, .width = 23, .crop = crop::random_resized{}, .flip = 0.5};
      o.layout = layout;
      o.type = type;
      if (type != dtype::u8) {
        o.mean = {0.485F, 0.456F, 0.406F};
        o.std = {0.229F, 0.224F, 0.225F};
      }
      CAPTURE(name_of(type), layout == image_layout::chw);
      const std::vector<host_batch> with = batches_of(photos(6), decode_images(o, nothing));
      const std::vector<host_batch> without = batches_of(photos(6), decode_images(o));
      REQUIRE(with.size() == 2);
      for (std::size_t b = 0; b < 2; ++b) {
        REQUIRE(with[b].layout().fields() == without[b].layout().fields());
        const std::vector<double> is = values_of(with[b].field("image"));
        const std::vector<double> was = values_of(without[b].field("image"));
        double worst = 0;
        for (std::size_t i = 0; i < was.size(); ++i) worst = std::max(worst, std::abs(is[i] - was[i]));
        CHECK(worst <= 1e-6);
      }
    }
  }
}

TEST_CASE("a function gets values from 0 to 1 before they are normalised, and what it leaves is stored") {
  image_options o{.height = 4, .width = 5, .layout = image_layout::hwc, .type = dtype::f32, .mean = {0.5F, 0, 0}};
  o.std = {0.25F, 1, 2};
  const auto ramp = [](const pixels<float>& chw, sample_rng&) {
    if (chw.channels != 3 || chw.height != 4 || chw.width != 5) throw std::runtime_error("another shape");
    for (std::size_t i = 0; i < 3 * chw.area(); ++i) {
      if (chw.data[i] < 0 || chw.data[i] > 1) throw std::runtime_error("another range");
      chw.data[i] = static_cast<float>(i) / 4;
    }
  };
  const std::vector<host_batch> floats = batches_of(photos(1), decode_images(o, ramp));
  const auto values = floats.at(0).field("image").values<float>();
  CHECK(values[3 * 7] == (7.0F / 4 - 0.5F) / 0.25F);
  CHECK(values[3 * 7 + 1] == 27.0F / 4);
  CHECK(values[3 * 7 + 2] == 47.0F / 8);
  const auto beyond = [](const pixels<float>& chw, sample_rng&) {
    const float given[] = {-1, 0.25F, 2, 1, 0.501F};
    for (std::size_t i = 0; i < 3 * chw.area(); ++i) chw.data[i] = given[i % 5];
  };
  const std::vector<host_batch> bytes_of_it =
      batches_of(photos(1), decode_images({.height = 4, .width = 5, .layout = image_layout::chw}, beyond));
  const auto small = bytes_of_it.at(0).field("image").values<std::uint8_t>();
  CHECK(std::vector<int>(small.begin() + 5, small.begin() + 10) == std::vector<int>{0, 64, 255, 255, 128});
}

TEST_CASE("a function's random numbers are the sample's own, after those of crop and flip") {
  const image_options o{.height = 8, .width = 8, .crop = crop::random_resized{}, .flip = 0.5};
  const auto noise = [](const pixels<float>& chw, sample_rng& numbers) {
    for (std::size_t i = 0; i < chw.area(); ++i) chw.data[i] = static_cast<float>(numbers.uniform());
  };
  const std::vector<sample> samples = photos(12);
  const std::string once = contents(batches_of(samples, decode_images(o, noise), 1));
  const bool same_on_three = contents(batches_of(samples, decode_images(o, noise), 3)) == once;
  CHECK(same_on_three);
  const bool same_alone = contents(batches_of({samples[7]}, decode_images(o, noise))) == once.substr(7 * 192, 192);
  CHECK(same_alone);
  const bool same_images = once.substr(0, 192) == once.substr(192, 192);
  CHECK_FALSE(same_images);
}

TEST_CASE("an exception of a function names the sample") {
  const image_options o{.height = 8, .width = 8};
  const auto refuses = [](const pixels<float>&, sample_rng&) { throw decode_error("too dark"); };
  CHECK_THROWS_WITH(batches_of(photos(1), decode_images(o, refuses)), "s3://b/a.tar at byte 0, k0: too dark");
  const auto fails = [](const pixels<float>&, sample_rng&) { throw std::runtime_error("a bug"); };
  CHECK_THROWS_WITH(batches_of(photos(1), decode_images(o, fails)), Contains("s3://b/a.tar at byte 0, k0"));
}

TEST_CASE("labels may become one value for each class, and a class beyond them is an error") {
  const image_options o{.height = 8, .width = 8, .one_hot = 3};
  const std::vector<host_batch> made = batches_of(photos(3), decode_images(o));
  const tensor_view labels = made.at(0).field("label");
  CHECK(labels.dims() == shape{3, 3});
  CHECK(values_of(labels) == std::vector<double>{1, 0, 0, 0, 1, 0, 0, 0, 1});
  CHECK_THROWS_WITH(batches_of(photos(4), decode_images(o)),
                    "s3://b/a.tar at byte 1536, k3: the class number 3 is none of 3");
  CHECK_THROWS_AS(decode_images({.height = 8, .width = 8, .one_hot = -1}), configuration_error);
}

TEST_CASE("a batch is mixed by the numbers of its first sample, whatever was read before") {
  const image_options o{.height = 8, .width = 8, .layout = image_layout::chw, .type = dtype::f32, .one_hot = 12};
  const std::vector<sample> samples = photos(12);
  for (const bool cut : {false, true}) {
    const auto mixed = [&](std::size_t from, unsigned threads) {
      std::vector<host_batch> batches =
          batches_of(std::vector<sample>(samples.begin() + static_cast<std::ptrdiff_t>(from), samples.end()),
                     decode_images(o), threads);
      std::string all;
      for (const host_batch& b : batches) {
        if (cut) {
          augment::cutmix(b, 1);
        } else {
          augment::mixup(b, 0.4);
        }
        all += std::string(static_cast<const char*>(b.field("label").data()), b.field("label").bytes());
      }
      return all;
    };
    const std::string all = mixed(0, 1);
    const bool same_later = mixed(4, 3) == all.substr(4 * 12 * 4);
    CHECK(same_later);
    const bool same_batches = all.substr(0, 4) == all.substr(4 * 13 * 4, 4);  // the shares that images keep
    CHECK_FALSE(same_batches);
  }
  const std::vector<host_batch> narrow = batches_of(samples, decode_images({.height = 8, .width = 8}));
  CHECK_THROWS_AS(augment::mixup(narrow.at(0), 0.4), configuration_error);
}

TEST_CASE("empty rows of a batch are mixed into none") {
  std::vector<sample> all = photos(4);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || i == 2) all[i] = sample();  // could not be read
    all[i].mark.known = all[i].mark.counted = true;
    all[i].mark.position = i;
    all[i].mark.next = i + 1;
    all[i].mark.padding = i == 0 || i == 2;
  }
  image_options o{.height = 8, .width = 8, .layout = image_layout::chw, .type = dtype::f32};
  o.one_hot = 4;
  const std::vector<host_batch> plain = batches_of(all, decode_images(o));
  REQUIRE(plain.size() == 1);
  REQUIRE(plain[0].weights()[0] == 0);
  REQUIRE(plain[0].weights()[1] == 1);
  for (const bool cut : {false, true}) {
    const std::vector<host_batch> mixed = batches_of(all, decode_images(o));
    cut ? augment::cutmix(mixed[0], 1) : augment::mixup(mixed[0], 1);
    const std::vector<double> labels = values_of(mixed[0].field("label"));
    for (const std::size_t empty : {0u, 2u}) {
      for (std::size_t c = 0; c < 4; ++c) CHECK(labels[empty * 4 + c] == 0);
    }
    CHECK(labels[1 * 4 + 1] + labels[1 * 4 + 3] == Approx(1));  // of itself and the other sample
    CHECK(labels[3 * 4 + 1] + labels[3 * 4 + 3] == Approx(1));
    const std::vector<double> images = values_of(mixed[0].field("image"));
    CHECK(std::all_of(images.begin() + 2 * 192, images.begin() + 3 * 192, [](double v) { return v == 0; }));
  }
}
