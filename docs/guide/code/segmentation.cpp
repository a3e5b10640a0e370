// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The programs of docs/guide/segmentation.md, over a small data set of their own.

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

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
