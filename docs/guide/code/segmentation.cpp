// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The programs of docs/guide/segmentation.md, over a small data set of their own.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <millrace/decode/augment.hpp>
#include <millrace/decode/decode_images.hpp>
#include <millrace/millrace.hpp>
#include <millrace/tar/writer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/encode_png.hpp"
#include "tests/support/temporary_folder.hpp"

namespace mill = millrace;

#if defined(MILLRACE_WITH_PNG)

namespace {

// begin training
/// Members NAME.jpg or NAME.png, and NAME.seg.png with the class of each pixel.
auto training(const std::string& folder, std::uint64_t epoch) {
  const mill::image_options images{.height = 64,
                                   .width = 64,
                                   .crop = mill::crop::random_resized{.scale = {0.25, 1}},
                                   .flip = 0.5,
                                   .layout = mill::image_layout::chw,
                                   .type = mill::dtype::f16,
                                   .label = "",
                                   .mask = "seg.png",
                                   .classes = 21};
  return mill::glob(folder + "/*.tar") | mill::shuffle_shards({.seed = 7, .epoch = epoch}) |
         mill::fetch(mill::files()) | mill::untar() | mill::group_samples() | mill::decode_images(images) |
         mill::batch(4) | mill::to_device(mill::host_device());
}
// end training

// begin turned
/// Image and mask, turned alike by up to 15 degrees.
auto turned(const std::string& folder, std::uint64_t epoch) {
  const mill::image_options images{.height = 64,
                                   .width = 64,
                                   .crop = mill::crop::random_resized{.scale = {0.25, 1}},
                                   .label = "",
                                   .mask = "seg.png"};
  const auto turn = [](const mill::pixels<float>& chw, const mill::pixels<std::uint8_t>& mask,
                       mill::sample_rng& numbers) {
    const double degrees = 30 * numbers.uniform() - 15;
    mill::augment::rotate(chw, degrees, mill::image_filter::bilinear);
    mill::augment::rotate(mask, degrees);  // 255 beside the image: no class
  };
  return mill::glob(folder + "/*.tar") | mill::shuffle_shards({.seed = 7, .epoch = epoch}) |
         mill::fetch(mill::files()) | mill::untar() | mill::group_samples() | mill::decode_images(images, turn) |
         mill::batch(4);
}
// end turned

// begin points
/// Image, mask, and the middle of an object: -1, -1 where it is outside.
class turned_object {
 public:
  void operator()(const mill::sample& s, const mill::batch_row& row) const {
    mill::sample_rng numbers = s.random(1);
    const mill::image_geometry g = image_.into(row.field("image"), s["left.png"], numbers);
    mask_.into(row.field("mask"), s["seg.png"], g);
    const double degrees = 30 * numbers.uniform() - 15;
    mill::augment::rotate(mill::pixels<float>(row.values<float>("image").data(), 3, side, side), degrees);
    mill::augment::rotate(mill::pixels<std::uint8_t>(row.values<std::uint8_t>("mask").data(), 1, side, side), degrees);
    std::optional<mill::image_point> middle = g.moved(mill::image_point{.x = 50, .y = 45});
    if (middle) middle = mill::augment::rotated(*middle, degrees, side, side);
    const std::span<float> xy = row.values<float>("middle");
    xy[0] = middle ? static_cast<float>(middle->x) : -1;
    xy[1] = middle ? static_cast<float>(middle->y) : -1;
    row.key(s.key);
  }
  mill::batch_layout layout(std::size_t samples) const {
    return mill::batch_layout(samples, {{"image", mill::dtype::f32, image_.dims()},
                                        {"mask", mill::dtype::u8, mask_.dims()},
                                        {"middle", mill::dtype::f32, {2}}});
  }

 private:
  static constexpr int side = 64;
  mill::image_decoder image_{{.height = side,
                              .width = side,
                              .crop = mill::crop::random_resized{.scale = {0.5, 1}},
                              .flip = 0.5,
                              .layout = mill::image_layout::chw,
                              .type = mill::dtype::f32}};
  mill::image_decoder mask_{{.height = side, .width = side, .channels = mill::image_channels::class_numbers}};
};
// end points

// begin stereo
/// Two views of a scene, and the depth of each pixel as a grey PNG: cropped and flipped alike.
class stereo_scene {
 public:
  void operator()(const mill::sample& s, const mill::batch_row& row) const {
    mill::sample_rng numbers = s.random(1);
    const mill::image_geometry g = view_.into(row.field("left"), s["left.png"], numbers);
    view_.into(row.field("right"), s["right.png"], g);
    depth_.into(row.field("depth"), s["depth.png"], g);
    row.key(s.key);
  }
  mill::batch_layout layout(std::size_t samples) const {
    return mill::batch_layout(samples, {{"left", mill::dtype::u8, view_.dims()},
                                        {"right", mill::dtype::u8, view_.dims()},
                                        {"depth", mill::dtype::f32, depth_.dims()}});
  }

 private:
  mill::image_decoder view_{{.height = 64, .width = 96, .crop = mill::crop::random_resized{}}};
  mill::image_decoder depth_{
      {.height = 64, .width = 96, .channels = mill::image_channels::grey, .type = mill::dtype::f32}};
};

auto scenes(const std::string& folder) {
  const stereo_scene write;
  return mill::glob(folder + "/*.tar") | mill::fetch(mill::files()) | mill::untar() | mill::group_samples() |
         mill::fill_batches(mill::batch_pool(write.layout(4)), write);
}
// end stereo

auto objects(const std::string& folder) {
  const turned_object write;
  return mill::glob(folder + "/*.tar") | mill::fetch(mill::files()) | mill::untar() | mill::group_samples() |
         mill::fill_batches(mill::batch_pool(write.layout(4)), write);
}

/// Red is 10 times the class.
int class_at(int x, int y) { return (x / 16 + y / 16) % 21; }

}  // namespace

TEST_CASE("the guide's programs for segmentation see masks where their images are", "[guide]") {
  mill::test::temporary_folder at;
  std::string tar;
  mill::tar::writer w(tar);
  for (int i = 0; i < 8; ++i) {
    const std::string key = "k" + std::to_string(i);
    const std::string image = mill::test::encode_png(
        100 + i, 90, {.colours = 2}, [](int x, int y, int c) { return c == 0 ? 10 * class_at(x, y) : 0; });
    w.add(key + ".seg.png",
          mill::test::encode_png(100 + i, 90, {.colours = 3}, [](int x, int y, int) { return class_at(x, y); }));
    w.add(key + ".left.png", image);
    w.add(key + ".right.png", image);
    w.add(key + ".depth.png",
          mill::test::encode_png(100 + i, 90, {}, [](int x, int y, int) { return 10 * class_at(x, y); }));
  }
  w.finish();
  std::ofstream(at.file("0.tar"), std::ios::binary) << tar;

  mill::runtime rt;
  std::size_t masks = 0, pixels = 0, seen = 0;
  for (const mill::device_batch& b : rt.run(training(at.path(), 0))) {
    masks += b.size();
    for (const std::uint8_t c : b.field("mask").values<std::uint8_t>()) {
      ++pixels;
      seen += c != 0;
    }
  }
  CHECK(masks == 8);
  CHECK(pixels == 8 * 64 * 64);
  CHECK(seen > pixels / 2);

  // Turned: where the mask has a class, the image has its colour, but at the edges of objects and of the image.
  std::size_t alike = 0, classes = 0, outside = 0;
  for (const mill::host_batch& b : rt.run(turned(at.path(), 0))) {
    const auto mask = b.field("mask").values<std::uint8_t>();
    const auto image = b.field("image").values<std::uint8_t>();
    for (std::size_t p = 0; p < mask.size(); ++p) {
      outside += mask[p] == 255;
      classes += mask[p] != 255;
      alike += mask[p] != 255 && std::abs(image[p * 3] - 10 * mask[p]) <= 2;
    }
  }
  CHECK(outside > 100);
  CHECK(alike > classes * 3 / 4);

  // The point is on the pixels that were around it.
  std::size_t seen_points = 0;
  for (const mill::host_batch& b : rt.run(objects(at.path()))) {
    const auto mask = b.field("mask").values<std::uint8_t>();
    const auto middle = b.field("middle").values<float>();
    for (std::size_t i = 0; i < b.size(); ++i) {
      if (middle[i * 2] < 2 || middle[i * 2] > 62 || middle[i * 2 + 1] < 2 || middle[i * 2 + 1] > 62) continue;
      ++seen_points;
      const auto x = static_cast<std::size_t>(middle[i * 2]);
      const auto y = static_cast<std::size_t>(middle[i * 2 + 1]);
      CHECK(int(mask[(i * 64 + y) * 64 + x]) == class_at(50, 45));
    }
  }
  CHECK(seen_points >= 4);

  std::size_t different = 0;
  for (const mill::host_batch& b : rt.run(scenes(at.path()))) {
    const auto left = b.field("left").values<std::uint8_t>();
    const auto right = b.field("right").values<std::uint8_t>();
    const auto depth = b.field("depth").values<float>();
    for (std::size_t p = 0; p < depth.size(); ++p) {
      different += left[p * 3] != right[p * 3] || depth[p] != static_cast<float>(left[p * 3]) / 255.0F;
    }
  }
  CHECK(different == 0);
}

#else
TEST_CASE("the guide's programs for segmentation", "[guide]") {
  MILLRACE_SKIP("libspng is not installed (Debian: libspng-dev)");
}
#endif
