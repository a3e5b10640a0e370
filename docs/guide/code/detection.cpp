// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The program of docs/guide/detection.md, over a small data set of its own.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <millrace/decode/image_decoder.hpp>
#include <millrace/millrace.hpp>
#include <millrace/tar/writer.hpp>

#if __has_include(<simdjson.h>)
#include <millrace/decode/json_reader.hpp>
#endif

#include "tests/support/catch.hpp"
#include "tests/support/encode_png.hpp"
#include "tests/support/temporary_folder.hpp"

namespace mill = millrace;

#if __has_include(<simdjson.h>) && defined(MILLRACE_WITH_PNG)

namespace {

// begin row
/// The objects of an image: NAME.json is {"boxes": [[x1, y1, x2, y2], ...], "classes": [...]}.
struct objects {
  std::vector<std::vector<double>> boxes;
  std::vector<std::int64_t> classes;
};

/// An image, up to 100 boxes in its pixels, and how many there are.
class detection_row {
 public:
  detection_row() { read_.member("boxes", &objects::boxes).member("classes", &objects::classes); }

  void operator()(const mill::sample& s, const mill::batch_row& row) const {
    const mill::where at = s.from.at(s.key);
    mill::sample_rng numbers = s.random(1);
    const mill::image_geometry g = decoder_.into(row.field("image"), s["png"], numbers, at);
    const objects found = read_(s["json"], at);
    const std::span<float> boxes = row.values<float>("boxes");
    const std::span<std::int64_t> classes = row.values<std::int64_t>("classes");
    std::size_t n = 0;
    for (std::size_t i = 0; i < found.boxes.size() && n < most; ++i) {
      const std::vector<double>& b = found.boxes[i];
      if (b.size() != 4 || i >= found.classes.size()) throw mill::decode_error("a box without four numbers", at);
      // Boxes of which less than a tenth is left are no objects of this crop.
      const std::optional<mill::image_box> moved = g.moved(mill::image_box(b[0], b[1], b[2], b[3]), 0.1);
      if (!moved) continue;
      boxes[n * 4] = static_cast<float>(moved->left);
      boxes[n * 4 + 1] = static_cast<float>(moved->top);
      boxes[n * 4 + 2] = static_cast<float>(moved->right);
      boxes[n * 4 + 3] = static_cast<float>(moved->bottom);
      classes[n++] = found.classes[i];
    }
    row.set("objects", static_cast<std::int64_t>(n));
    row.key(s.key);
  }

  mill::batch_layout layout(std::size_t samples) const {
    return mill::batch_layout(samples, {{"image", mill::dtype::f32, decoder_.dims()},
                                        {"boxes", mill::dtype::f32, {most, 4}},
                                        {"classes", mill::dtype::i64, {most}},
                                        {"objects", mill::dtype::i64}});
  }

 private:
  static constexpr std::size_t most = 100;
  mill::json_reader<objects> read_;
  mill::image_decoder decoder_{{.height = 64,
                                .width = 64,
                                .crop = mill::crop::random_resized{.scale = {0.3, 1}},
                                .flip = 0.5,
                                .layout = mill::image_layout::chw,
                                .type = mill::dtype::f32}};
};

auto training(const std::string& folder, std::uint64_t epoch) {
  const detection_row write;
  return mill::glob(folder + "/*.tar") | mill::shuffle_shards({.seed = 7, .epoch = epoch}) |
         mill::fetch(mill::files()) | mill::untar() | mill::group_samples() |
         mill::fill_batches(mill::batch_pool(write.layout(4)), write) | mill::to_device(mill::host_device());
}
// end row

// begin crop
/// The image and its boxes without the margin around them: a crop of the program's own.
std::vector<mill::image_box> around(const mill::image_decoder& decoder, const mill::tensor_view& place,
                                    const mill::bytes& file, const std::vector<mill::image_box>& boxes) {
  const mill::undecoded_image header = decoder.undecoded(file);
  const mill::shape dims = decoder.dims();  // of hwc
  mill::image_geometry g{.width = header.width,
                         .height = header.height,
                         .taken = boxes.at(0),
                         .out_width = static_cast<int>(dims[1]),
                         .out_height = static_cast<int>(dims[0])};
  for (const mill::image_box& b : boxes) {
    g.taken = mill::image_box(std::min(g.taken.left, b.left), std::min(g.taken.top, b.top),
                              std::max(g.taken.right, b.right), std::max(g.taken.bottom, b.bottom));
  }
  decoder.into(place, file, g);
  std::vector<mill::image_box> moved;
  for (const mill::image_box& b : boxes) moved.push_back(g.moved(b).value());
  return moved;
}
// end crop

bool in_box(int x, int y) { return x >= 30 && x < 60 && y >= 20 && y < 70; }

std::string spot(int width, int height) {
  return mill::test::encode_png(width, height, {}, [](int x, int y, int) { return in_box(x, y) ? 255 : 0; });
}

}  // namespace

TEST_CASE("the guide's program for detection sees boxes where their objects are", "[guide]") {
  mill::test::temporary_folder at;
  std::string tar;
  mill::tar::writer w(tar);
  for (int i = 0; i < 8; ++i) {
    const std::string key = "k" + std::to_string(i);
    w.add(key + ".png", spot(100 + i, 90));
    w.add(key + ".json", R"({"boxes": [[30, 20, 60, 70], [0, 0, 1, 1]], "classes": [5, 6]})");
  }
  w.finish();
  std::ofstream(at.file("0.tar"), std::ios::binary) << tar;

  mill::runtime rt;
  std::size_t images = 0, objects_seen = 0, wrong = 0;
  for (const mill::device_batch& b : rt.run(training(at.path(), 0))) {
    const auto pixels = b.field("image").values<float>();
    const auto boxes = b.field("boxes").values<float>();
    for (std::size_t i = 0; i < b.size(); ++i, ++images) {
      if (b.field("objects").values<std::int64_t>()[i] == 0) continue;
      if (b.field("classes").values<std::int64_t>()[i * 100] != 5) continue;
      ++objects_seen;
      const float* const box = boxes.data() + i * 400;
      const auto x = static_cast<std::size_t>((box[0] + box[2]) / 2);
      const auto y = static_cast<std::size_t>((box[1] + box[3]) / 2);
      wrong += pixels[i * 3 * 64 * 64 + y * 64 + x] != 1;
    }
  }
  CHECK(images == 8);
  CHECK(objects_seen > 4);
  CHECK(wrong == 0);

  const mill::image_decoder decoder(mill::image_options{.height = 50, .width = 30});
  std::vector<std::uint8_t> got(50 * 30 * 3);
  const mill::tensor_view place(got.data(), mill::dtype::u8, decoder.dims());
  const auto moved = around(decoder, place, mill::bytes::copy(spot(100, 90)), {{30, 20, 60, 60}, {40, 30, 50, 70}});
  CHECK(moved[0] == mill::image_box(0, 0, 30, 40));
  CHECK(moved[1] == mill::image_box(10, 10, 20, 50));
  CHECK(got == std::vector<std::uint8_t>(50 * 30 * 3, 255));
}

#else
TEST_CASE("the guide's program for detection", "[guide]") {
  MILLRACE_SKIP("libspng or simdjson is not installed (Debian: libspng-dev, libsimdjson-dev)");
}
#endif
