// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/decode_images.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/decode/augment.hpp>
#include <millrace/device/device.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/encode_png.hpp"

// Several images of a sample with one geometry. The pixels of images tell their own coordinates, so that each pixel of
// a tensor says where it came from, and the mask can be checked there.

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

template <class Value>
bytes png(int width, int height, test::png_kind kind, Value value) {
  return bytes::copy(test::encode_png(width, height, kind, value));
}

/// Red is x, green y.
bytes coordinates(int width, int height) {
  return png(width, height, {.colours = 2}, [](int x, int y, int c) { return c == 0 ? x : c == 1 ? y : 0; });
}
int class_at(int x, int y) { return (x * 7 + y * 13) % 251; }
bytes mask_of(int width, int height, test::png_kind kind = {}) {
  return png(width, height, kind, [](int x, int y, int) { return class_at(x, y); });
}

template <class T = std::uint8_t>
std::vector<T> tensor_of(const image_options& options, const bytes& data) {
  const image_decoder decode(options);
  std::vector<T> values(decode.dims().elements());
  rng numbers(3);
  decode.into(tensor_view(values.data(), options.type, decode.dims()), data, numbers);
  return values;
}

sample scene(int i, bytes image_file, bytes mask_file) {
  const auto number = static_cast<std::uint64_t>(i);
  sample s("k" + std::to_string(i), origin(std::make_shared<const shard>(shard("s3://b/a.tar")), 512 * number, number));
  s.fields.emplace_back("seg.png", std::move(mask_file));  // the first one, and not the image
  s.fields.emplace_back("png", std::move(image_file));
  return s;
}

template <class... F>
std::vector<host_batch> decoded(const std::vector<sample>& samples, const image_options& o, F... f) {
  testing::virtual_loop loop;
  cpu_pool cores(2);
  auto batches = from_range(samples) | decode_images(o, f...) | batch(8, {.on = cores});
  return block_on(loop, collect(std::move(batches)));
}

const image_options segmentation{.height = 24,
                                 .width = 20,
                                 .crop = crop::random_resized{},
                                 .flip = 0.5,
                                 .filter = image_filter::nearest,
                                 .label = "",
                                 .mask = "seg.png"};

template <class F>
std::string reason_of(F&& f) {
  try {
    f();
  } catch (const error& e) {
    return e.what();
  }
  return "nothing was refused";
}

std::string refusal(const bytes& image_file, const bytes& mask_file, int classes = 0) {
  image_options o = segmentation;
  o.classes = classes;
  return reason_of([&] { decoded({scene(3, image_file, mask_file)}, o); });
}

}  // namespace

TEST_CASE("an image and its mask get one crop, resize and flip, pixel by pixel") {
  std::vector<sample> samples;
  for (int i = 0; i < 24; ++i) {
    const int width = 30 + 11 * (i % 7);
    const int height = 25 + 9 * (i % 5);
    samples.push_back(scene(i, coordinates(width, height), mask_of(width, height, {.colours = i % 2 == 0 ? 3 : 0})));
  }
  int mirrored = 0;
  for (const int crop_kind : {0, 1, 2}) {
    image_options o = segmentation;
    if (crop_kind == 1) o.crop = crop::center{.fraction = 0.7};
    if (crop_kind == 2) o.crop = crop::none;
    for (const host_batch& b : decoded(samples, o)) {
      REQUIRE(b.field("mask").dims() == shape{8, 24, 20});
      REQUIRE(b.field("mask").type() == dtype::u8);
      const auto image_values = b.field("image").values<std::uint8_t>();
      const auto mask_values = b.field("mask").values<std::uint8_t>();
      std::size_t wrong = 0;
      for (std::size_t p = 0; p < mask_values.size(); ++p) {
        wrong += mask_values[p] != class_at(image_values[p * 3], image_values[p * 3 + 1]);
      }
      CHECK(wrong == 0);
      for (std::size_t i = 0; i < 8; ++i)
        mirrored += image_values[i * 24 * 20 * 3] > image_values[(i * 24 * 20 + 19) * 3];
    }
  }
  CHECK(mirrored > 20);
  CHECK(mirrored < 52);
}

TEST_CASE("a mask belongs to the image as it is turned upright, and is turned by its own orientation") {
  const int width = 45, height = 33;  // as stored
  std::string stored(coordinates(width, height).view());
  const std::string exif("MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 26);
  stored.insert(8 + 25, test::png_chunk("eXIf", exif));  // after the header
  image_options o = segmentation;
  o.crop = crop::none;
  std::size_t wrong = 0;
  const std::vector<host_batch> batches = decoded(
      {scene(1, bytes::copy(stored), mask_of(height, width)), scene(2, bytes::copy(stored), mask_of(height, width)),
       scene(3, bytes::copy(stored), mask_of(height, width))},
      o);
  const auto image_values = batches[0].field("image").values<std::uint8_t>();
  const auto mask_values = batches[0].field("mask").values<std::uint8_t>();
  for (std::size_t p = 0; p < mask_values.size(); ++p) {
    wrong += mask_values[p] != class_at(height - 1 - image_values[p * 3 + 1], image_values[p * 3]);
  }
  CHECK(wrong == 0);
  CHECK_THAT(refusal(bytes::copy(stored), mask_of(width, height)), Contains("45x33") && Contains("33x45"));
}

TEST_CASE("a mask changes nothing of its image") {
  std::vector<sample> samples;
  for (int i = 0; i < 8; ++i) samples.push_back(scene(i, coordinates(60, 50 + i), mask_of(60, 50 + i)));
  image_options o = segmentation;
  o.filter = image_filter::bilinear;
  const std::vector<host_batch> with = decoded(samples, o);
  o.mask = "";
  o.field = "png";
  const std::vector<host_batch> without = decoded(samples, o);
  CHECK(without[0].layout().fields().size() == 1);
  const auto a = with[0].field("image").values<std::uint8_t>();
  const auto b = without[0].field("image").values<std::uint8_t>();
  CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
}

TEST_CASE("class numbers are the values of grey PNGs and the indices of palettes, of any depth") {
  const int width = 37, height = 19;
  for (const int depth : {1, 2, 4, 8}) {
    for (const int colours : {0, 3}) {
      for (const bool interlaced : {false, true}) {
        CAPTURE(depth, colours, interlaced);
        const int most = (1 << depth) - 1;
        const bytes file = png(width, height, {depth, colours, interlaced},
                               [most](int x, int y, int) { return class_at(x, y) & most; });
        const image_options o{.height = height, .width = width, .channels = image_channels::class_numbers};
        const std::vector<std::uint8_t> got = tensor_of(o, file);
        std::size_t wrong = 0;
        for (int y = 0; y < height; ++y) {
          for (int x = 0; x < width; ++x) {
            wrong += got[static_cast<std::size_t>(y * width + x)] != (class_at(x, y) & most);
          }
        }
        CHECK(wrong == 0);
        // A decoder of class numbers still gives whole images in colours.
        if (colours == 3) CHECK(image_decoder(o).whole(file).pixels[2] == 90);
      }
    }
  }
}

TEST_CASE("masks without class numbers are refused, by the sample's name and the reason") {
  const bytes picture = coordinates(40, 30);
  CHECK_THAT(refusal(picture, mask_of(30, 40)),
             Contains("s3://b/a.tar") && Contains("k3.seg.png") &&
                 Contains("it has 30x40 pixels, and the image whose geometry it gets has 40x30"));
  CHECK_THAT(refusal(picture, picture), Contains("k3.seg.png") && Contains("the PNG has colours without a palette"));
  CHECK_THAT(refusal(picture, png(40, 30, {.colours = 4}, [](int, int, int) { return 0; })),
             Contains("or an alpha channel"));
  CHECK_THAT(refusal(picture, png(40, 30, {.depth = 16}, [](int x, int, int) { return x; })),
             Contains("the PNG has 16 bits a pixel, and they have 8"));
  const std::vector<std::uint8_t> pixels(40 * 30 * 3);
  CHECK_THAT(refusal(picture, bytes::copy(examples::encode_jpeg(pixels, 40, 30))),
             Contains("k3.seg.png") && Contains("class numbers cannot be read: only those of PNGs are"));
  CHECK_THAT(refusal(picture, bytes::copy("no image")), Contains("k3.seg.png") && Contains("not an image"));
  sample without = scene(3, picture, picture);
  without.fields.erase(without.fields.begin());
  CHECK_THAT(reason_of([&] { decoded({without}, segmentation); }), Contains("seg.png"));
}

TEST_CASE("class numbers beyond those that are declared are refused, but for 255") {
  const auto file = [](int other) {
    return png(40, 30, {}, [other](int x, int y, int) { return (x / 8 + y / 8) % 2 == 0 ? 20 : other; });
  };
  const bytes picture = coordinates(40, 30);
  CHECK(refusal(picture, file(255), 21) == "nothing was refused");
  CHECK(refusal(picture, file(22)) == "nothing was refused");
  CHECK_THAT(refusal(picture, file(21), 21),
             Contains("k3.seg.png") && Contains("a pixel has class number 21, and there are 21 classes"));
  CHECK_THAT(reason_of([] { decode_images({.height = 8, .width = 8, .classes = 21}); }),
             Contains(".mask names no field"));
  CHECK_THAT(reason_of([] { decode_images({.height = 8, .width = 8, .mask = "seg.png", .classes = 257}); }),
             Contains("from 1 to 256"));
  CHECK_THAT(reason_of([] {
               image_decoder(image_options{
                   .height = 8, .width = 8, .channels = image_channels::class_numbers, .type = dtype::f32});
             }),
             Contains("class numbers become u8, not f32"));
}

TEST_CASE("grey images are the luma of the three channels, in every type and layout") {
  std::vector<std::uint8_t> pixels;
  for (int p = 0; p < 61 * 43 * 3; ++p) pixels.push_back(static_cast<std::uint8_t>(p * 7 / 3 + p / 61));
  const bytes file = bytes::copy(examples::encode_jpeg(pixels, 61, 43));
  image_options o{.height = 30, .width = 37, .crop = crop::random_resized{}, .flip = 1};
  const std::vector<std::uint8_t> rgb = tensor_of(o, file);
  o.channels = image_channels::grey;
  CHECK(image_decoder(o).dims() == shape{30, 37, 1});
  const std::vector<std::uint8_t> grey = tensor_of(o, file);
  REQUIRE(grey.size() == 30 * 37);
  std::size_t wrong = 0;
  for (std::size_t p = 0; p < grey.size(); ++p) {
    const double luma = 0.299 * rgb[p * 3] + 0.587 * rgb[p * 3 + 1] + 0.114 * rgb[p * 3 + 2];
    wrong += std::abs(luma - grey[p]) > 0.51;
  }
  CHECK(wrong == 0);
  o.layout = image_layout::chw;
  CHECK(image_decoder(o).dims() == shape{1, 30, 37});
  CHECK(tensor_of(o, file) == grey);
  for (const image_layout layout : {image_layout::hwc, image_layout::chw}) {
    o.layout = layout;
    o.mean = {0.5F, 0, 0};
    o.std = {0.25F, 1, 1};
    o.type = dtype::f32;
    const std::vector<float> wide = tensor_of<float>(o, file);
    o.type = dtype::f16;
    const std::vector<std::uint16_t> narrow = tensor_of<std::uint16_t>(o, file);
    wrong = 0;
    for (std::size_t p = 0; p < grey.size(); ++p) {
      const float value = (static_cast<float>(grey[p]) / 255.0F - 0.5F) / 0.25F;
      wrong += wide[p] != value || narrow[p] != detail::to_f16(value);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("another image of the sample gets the geometry of the first, and one of the program's own") {
  const image_options drawing{
      .height = 16, .width = 24, .crop = crop::random_resized{}, .flip = 0.5, .filter = image_filter::nearest};
  const image_decoder first(drawing);
  const image_decoder second(image_options{.height = 16, .width = 24, .filter = image_filter::nearest});
  const bytes left = coordinates(90, 70);
  std::vector<std::uint8_t> a(first.dims().elements()), b(a.size());
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    rng numbers(seed);
    const image_geometry g = first.into(tensor_view(a.data(), dtype::u8, first.dims()), left, numbers);
    CHECK(g.width == 90);
    CHECK(g.out_height == 16);
    second.into(tensor_view(b.data(), dtype::u8, second.dims()), left, g);
    CHECK(a == b);
  }
  image_geometry mine{.width = 90, .height = 70, .taken = {10, 20, 34, 36}, .out_width = 24, .out_height = 16};
  second.into(tensor_view(b.data(), dtype::u8, second.dims()), left, mine);
  CHECK(b[0] == 10);
  CHECK(b[1] == 20);
  CHECK(b[(16 * 24 - 1) * 3] == 33);
  const auto refused = [&](const image_geometry& g) {
    return reason_of([&] { second.into(tensor_view(b.data(), dtype::u8, second.dims()), left, g); });
  };
  mine.taken.right = 91;
  CHECK_THAT(refused(mine), Contains("no part of it"));
  mine.taken = image_box();
  CHECK_THAT(refused(mine), Contains("no part of it"));
  mine.out_width = 25;
  CHECK_THAT(refused(mine), Contains("images become 24x16 pixels, and the geometry's 25x16"));
}

TEST_CASE("boxes and points move with their image, and are clipped") {
  image_geometry g{.width = 100, .height = 80, .taken = {20, 10, 60, 50}, .out_width = 80, .out_height = 40};
  CHECK(g.moved(image_box(30, 20, 40, 30)) == image_box(20, 10, 40, 20));
  CHECK(g.moved(image_box(0, 0, 30, 20)) == image_box(0, 0, 20, 10));
  CHECK(g.moved(image_box(60, 20, 70, 30)) == std::nullopt);  // beside it
  CHECK(g.moved(image_box(30, 20, 30, 30)) == std::nullopt);  // no area
  CHECK(g.moved(image_box(40, 30, 30, 20)) == std::nullopt);
  CHECK(g.moved(image_box(10, 20, 30, 30), 0.5) == image_box(0, 10, 20, 20));  // just half of it
  CHECK(g.moved(image_box(10, 20, 30, 30), 0.51) == std::nullopt);
  CHECK(g.moved(image_point{.x = 30, .y = 20}) == image_point{.x = 20, .y = 10});
  CHECK(g.moved(image_point{.x = 61, .y = 20}) == std::nullopt);
  g.flipped = true;
  CHECK(g.moved(image_box(30, 20, 40, 30)) == image_box(40, 10, 60, 20));
  CHECK(g.moved(image_point{.x = 30, .y = 20}) == image_point{.x = 60, .y = 10});
}

TEST_CASE("a box that is drawn into a mask is where moved() says, turned or not") {
  rng random(9);
  const image_decoder decode(image_options{.height = 64,
                                           .width = 48,
                                           .crop = crop::random_resized{.scale = {0.3, 1}},
                                           .flip = 0.5,
                                           .channels = image_channels::class_numbers});
  int gone = 0;
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    const int left = static_cast<int>(random.below(80)), top = static_cast<int>(random.below(60));
    const int right = left + 8 + static_cast<int>(random.below(40)),
              bottom = top + 8 + static_cast<int>(random.below(30));
    const bytes file = png(120, 90, {.depth = 1},
                           [&](int x, int y, int) { return x >= left && x < right && y >= top && y < bottom ? 1 : 0; });
    std::vector<std::uint8_t> got(64 * 48);
    const image_geometry g = decode.into(tensor_view(got.data(), dtype::u8, decode.dims()), file, random);
    const std::optional<image_box> moved = g.moved(image_box(left, top, right, bottom));
    std::size_t wrong = 0;
    for (int y = 0; y < 64; ++y) {
      for (int x = 0; x < 48; ++x) {
        const bool inside =
            moved && x + 0.5 > moved->left && x + 0.5 < moved->right && y + 0.5 > moved->top && y + 0.5 < moved->bottom;
        // A pixel whose centre lies on the edge may be either.
        const bool edge = moved && (std::abs(x + 0.5 - moved->left) < 1e-6 || std::abs(x + 0.5 - moved->right) < 1e-6 ||
                                    std::abs(y + 0.5 - moved->top) < 1e-6 || std::abs(y + 0.5 - moved->bottom) < 1e-6);
        wrong += !edge && inside != (got[static_cast<std::size_t>(y * 48 + x)] == 1);
      }
    }
    CHECK(wrong == 0);
    gone += !moved;
  }
  CHECK(gone < 30);
}

TEST_CASE("a function of image and mask moves both alike, and is stored as any other") {
  std::vector<sample> samples;
  for (int i = 0; i < 8; ++i) samples.push_back(scene(i, coordinates(60 + i, 50), mask_of(60 + i, 50)));
  const auto turn = [](const pixels<float>& chw, const pixels<std::uint8_t>& mask, sample_rng& numbers) {
    if (mask.channels != 1 || mask.height != 24 || mask.width != 20) throw configuration_error("another shape");
    const double degrees = 90 * numbers.uniform() - 45;
    augment::rotate(chw, degrees, image_filter::nearest, 1);
    augment::rotate(mask, degrees);
  };
  std::vector<std::uint8_t> masks;
  for (const dtype type : {dtype::u8, dtype::f32}) {
    image_options o = segmentation;
    o.type = type;
    o.layout = type == dtype::f32 ? image_layout::chw : image_layout::hwc;
    const std::vector<host_batch> batches = decoded(samples, o, turn);
    const auto mask_values = batches.at(0).field("mask").values<std::uint8_t>();
    const tensor_view images = batches[0].field("image");
    const auto coordinate = [&](std::size_t p, std::size_t c) {
      const std::size_t area = 24 * 20;
      return type == dtype::u8 ? images.values<std::uint8_t>()[p * 3 + c]
                               : std::lround(255 * images.values<float>()[p / area * 3 * area + c * area + p % area]);
    };
    std::size_t wrong = 0;
    std::size_t outside = 0;
    for (std::size_t p = 0; p < mask_values.size(); ++p) {
      const auto x = static_cast<int>(coordinate(p, 0));
      const auto y = static_cast<int>(coordinate(p, 1));
      outside += x == 255;
      wrong += mask_values[p] != (x == 255 ? 255 : class_at(x, y));
    }
    CHECK(wrong == 0);
    CHECK(outside > 100);
    CHECK(outside < mask_values.size() / 2);
    if (masks.empty()) masks.assign(mask_values.begin(), mask_values.end());
    CHECK(std::equal(masks.begin(), masks.end(), mask_values.begin(), mask_values.end()));
  }
  // A function of images alone leaves masks as they are.
  const auto erase = [](const pixels<float>& chw, sample_rng&) { augment::erase(chw, 0, 0, 24, 20); };
  const std::vector<host_batch> with = decoded(samples, segmentation, erase);
  const std::vector<host_batch> without = decoded(samples, segmentation);
  const auto a = with.at(0).field("mask").values<std::uint8_t>();
  const auto b = without.at(0).field("mask").values<std::uint8_t>();
  CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  image_options none = segmentation;
  none.mask = "";
  CHECK_THROWS_WITH(decode_images(none, turn),
                    "a function of images and masks, and image_options::mask names no field");
}

TEST_CASE("the writer of a row returns the geometry, for boxes and points beside image and mask") {
  const image_row_writer write(segmentation);
  const batch_pool pool(write.layout(1));
  const sample s = scene(5, coordinates(90, 70), mask_of(90, 70));
  testing::virtual_loop loop;
  image_geometry g;
  const auto keep = [&](const sample& of, const batch_row& row) { g = write(of, row); };
  cpu_pool cores(1);
  auto batches = from_range(std::vector<sample>{s}) | fill_batches(pool, keep, {.on = cores});
  const std::vector<host_batch> made = block_on(loop, collect(std::move(batches)));
  CHECK(g.width == 90);
  const image_decoder decode(image_options{.height = 24, .width = 20, .filter = image_filter::nearest});
  std::vector<std::uint8_t> again(decode.dims().elements());
  decode.into(tensor_view(again.data(), dtype::u8, decode.dims()), s["png"], g);
  const auto image_values = made.at(0).field("image").values<std::uint8_t>();
  CHECK(std::equal(again.begin(), again.end(), image_values.begin(), image_values.end()));
}

TEST_CASE("a point of a turned image is where its pixel is") {
  for (const double degrees : {0.0, 90.0, 180.0, -90.0, 33.0, -70.5}) {
    CAPTURE(degrees);
    std::vector<std::uint8_t> values(31 * 41);
    const pixels<std::uint8_t> mask(values.data(), 1, 31, 41);
    for (int y = 11; y < 14; ++y) {
      for (int x = 25; x < 28; ++x) mask.row(0, y)[x] = 1;
    }
    augment::rotate(mask, degrees, 7);
    const image_point to = augment::rotated(image_point{.x = 26.5, .y = 12.5}, degrees, 31, 41);
    double x = 0, y = 0, n = 0;
    for (int row = 0; row < 31; ++row) {
      for (int column = 0; column < 41; ++column) {
        if (mask.row(0, row)[column] != 1) continue;
        x += column + 0.5;
        y += row + 0.5;
        ++n;
      }
    }
    REQUIRE(n >= 7);
    CHECK(std::abs(x / n - to.x) < 0.4);
    CHECK(std::abs(y / n - to.y) < 0.4);
  }
}
