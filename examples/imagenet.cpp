// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A training on images of ImageNet's shape, 500x375 JPEGs: epochs in one stream, random crops, f16 CHW, and a
// validation of each epoch beside the training, on the same runtime. The images are made here, and so is a model small
// enough to read: which mean colours a class has.
//
//   example_imagenet
//
// With AWS_ENDPOINT_URL_S3 (and keys) in the environment that store is used; without, an S3 server inside this program.

#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <millrace/decode/decode_images.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/train.hpp>

#include "examples/common/connect.hpp"
#include "examples/common/encode_jpeg.hpp"

namespace mill = millrace;

namespace {

constexpr int side = 224;
constexpr std::size_t classes = 6;

std::string photo(std::size_t label, mill::rng& random) {
  std::vector<std::uint8_t> pixels(500 * 375 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t ground = 60 + 120 * ((label + 1) >> i % 3 & 1);  // of a class: some of the three channels
    pixels[i] = static_cast<std::uint8_t>(ground + random.next() % 64);
  }
  return examples::encode_jpeg(pixels, 500, 375);
}

mill::task<void> upload(mill::s3::client s3, std::string folder, std::uint64_t shards, int images) {
  co_await s3.create_bucket("s3://imagenet");
  for (std::uint64_t n = 0; n < shards; ++n) {
    std::string tar;
    mill::tar::writer w(tar);
    mill::rng random(mill::rng(7, shards, n));
    for (int i = 0; i < images; ++i) {
      const std::size_t label = random.below(classes);
      const std::string name = std::to_string(n) + "-" + std::to_string(i);
      w.add(name + ".jpg", photo(label, random));
      w.add(name + ".cls", std::to_string(label));
    }
    w.finish();
    co_await s3.put("s3://imagenet/" + folder + std::to_string(n) + ".tar", mill::bytes::copy(tar));
  }
}

mill::image_options images(const mill::image_crop& crop, double flip) {
  return {.height = side,
          .width = side,
          .crop = crop,
          .flip = flip,
          .layout = mill::image_layout::chw,
          .type = mill::dtype::f16,
          .mean = {0.485f, 0.456f, 0.406f},
          .std = {0.229f, 0.224f, 0.225f}};
}

auto training(const mill::dataset& photos) {
  return mill::epochs(photos, {.seed = 7, .epochs = 3, .batch = 16, .tracks = 4}) |
         mill::decode_images(images(mill::crop::random_resized{}, 0.5)) | mill::batch() |
         mill::to_device(mill::host_device());
}

auto validation(const mill::s3::client& s3) {
  return s3.list("s3://imagenet/val/") | mill::fetch(s3) | mill::untar() | mill::group_samples() |
         mill::decode_images(images(mill::crop::center{.fraction = 0.875}, 0)) | mill::batch(16) |
         mill::to_device(mill::host_device());
}

/// What a number of 16 bits says (IEEE 754 binary16); those that say something else than a number do not come here.
float from_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = (bits & 1023) + (exponent == 0 ? 0 : 1024);
  return std::ldexp(static_cast<float>(bits >> 15 != 0 ? -fraction : fraction), (exponent == 0 ? 1 : exponent) - 25);
}

class colour_model {
 public:
  using colour = std::array<float, 3>;

  void learn(const mill::device_batch& b) {
    const auto labels = b.field("label").values<std::int64_t>();
    for (std::size_t i = 0; i < b.size(); ++i) {
      if (b.weights()[i] == 0) continue;  // only fills the batch up
      const colour seen = colour_of(b, i);
      known& k = known_[static_cast<std::size_t>(labels[i])];
      ++k.images;
      for (std::size_t c = 0; c < 3; ++c) k.mean[c] += (seen[c] - k.mean[c]) / k.images;
    }
  }

  /// Of how many the likeliest class is theirs.
  std::size_t right(const mill::device_batch& b) const {
    const auto labels = b.field("label").values<std::int64_t>();
    std::size_t count = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
      const colour seen = colour_of(b, i);
      std::size_t nearest = 0;
      for (std::size_t k = 1; k < classes; ++k) {
        if (distance(known_[k].mean, seen) < distance(known_[nearest].mean, seen)) nearest = k;
      }
      count += nearest == static_cast<std::size_t>(labels[i]);
    }
    return count;
  }

 private:
  struct known {
    float images = 0;
    colour mean = {};
  };

  static float distance(const colour& a, const colour& b) {
    return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  }
  /// The means of the channels, of every 37th pixel.
  static colour colour_of(const mill::device_batch& b, std::size_t i) {
    constexpr std::size_t pixels = side * side;
    const auto* const bits = static_cast<const std::uint16_t*>(b.field("image").data()) + i * 3 * pixels;
    colour sum = {};
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t p = 0; p < pixels; p += 37) sum[c] += from_f16(bits[c * pixels + p]) * 37 / pixels;
    }
    return sum;
  }

  std::array<known, classes> known_;
};

void validate(mill::runtime& rt, const mill::s3::client& s3, const colour_model& model, std::uint64_t epoch) {
  std::size_t seen = 0, right = 0;
  for (const mill::device_batch& b : rt.run(validation(s3))) {
    seen += b.size();
    right += model.right(b);
  }
  std::printf("epoch %d: top-1 %.1f%% of %zu images\n", static_cast<int>(epoch),
              100 * static_cast<double>(right) / static_cast<double>(seen), seen);
}

}  // namespace

int main() {
  const std::string index =
      (std::filesystem::temp_directory_path() / ("millrace-imagenet-" + std::to_string(::getpid()))).string();
  int status = 0;
  try {
    std::optional<mill::s3_server::background> server;
    const mill::s3::client s3 = examples::connect(server);
    const auto loop = mill::make_event_loop();
    mill::block_on(*loop, upload(s3, "train/", 3, 32));
    mill::block_on(*loop, upload(s3, "val/", 1, 40));
    const mill::dataset photos(s3, "s3://imagenet/train/", {.index = index});
    mill::runtime rt;
    colour_model model;
    auto run = rt.run(training(photos));
    for (mill::device_batch& b : run) {
      model.learn(b);
      // The next epoch is read while this one is judged.
      if (b.mark().last) validate(rt, s3, model, b.mark().epoch);
    }
  } catch (const mill::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    status = 1;
  }
  std::filesystem::remove(index);
  return status;
}
