// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// RandAugment (E. D. Cubuk et al., 2020) with OpenCV, as a function of decode_images(): of fourteen operations two for
// each image, drawn from the sample's own random numbers. So a training that was stopped resumes with the images that
// it would have seen, and any number of threads makes the same ones.
//
//   example_rand_augment FOLDER [STOP]     makes a small data set in FOLDER, and NAME.ppm: an image after an operation;
//                                          stops after STOP batches, and the next call resumes there

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/decode/augment.hpp>
#include <millrace/decode/decode_images.hpp>
#include <millrace/train.hpp>

#include "examples/common/painted_shards.hpp"

namespace mill = millrace;

namespace {

using planes = mill::pixels<float>;

/// A channel as OpenCV has images, in the same memory. Functions that write to it must find its size and type there:
/// otherwise OpenCV allocates another image, and the channel stays as it was.
cv::Mat channel(const planes& chw, int c) { return cv::Mat(chw.height, chw.width, CV_32FC1, chw.channel(c)); }

/// Calls f with each channel, as OpenCV has it.
template <class F>
void each_channel(const planes& chw, F f) {
  for (int c = 0; c < chw.channels; ++c) f(channel(chw, c));
}

/// The same with a copy in whole numbers from 0 to 255, which then is the channel.
template <class F>
void each_channel_of_bytes(const planes& chw, F f) {
  each_channel(chw, [&f](cv::Mat plane) {
    cv::Mat bytes;
    plane.convertTo(bytes, CV_8U, 255);
    f(bytes);
    bytes.convertTo(plane, CV_32F, 1 / 255.0);
  });
}

/// Each pixel becomes the one at xx * x + xy * y + x0, yx * x + yy * y + y0, from the middle of the image; black
/// outside.
void move(const planes& chw, double xx, double xy, double x0, double yx, double yy, double y0) {
  const double x = (chw.width - 1) / 2.0;
  const double y = (chw.height - 1) / 2.0;
  const cv::Matx23d from(xx, xy, x + x0 - xx * x - xy * y, yx, yy, y + y0 - yx * x - yy * y);
  each_channel(chw, [&from](cv::Mat plane) {
    cv::warpAffine(plane.clone(), plane, from, plane.size(), cv::INTER_NEAREST | cv::WARP_INVERSE_MAP);
  });
}

void rotate(const planes& chw, double radians) {
  move(chw, std::cos(radians), -std::sin(radians), 0, std::sin(radians), std::cos(radians), 0);
}

void sharpness(const planes& chw, double factor) {
  if (chw.width < 3 || chw.height < 3) return;
  const cv::Matx33f kernel = cv::Matx33f(1, 1, 1, 1, 5, 1, 1, 1, 1) * (1 / 13.0F);
  const cv::Rect inner(1, 1, chw.width - 2, chw.height - 2);  // the edges stay
  each_channel(chw, [&](cv::Mat plane) {
    cv::Mat soft;
    cv::filter2D(plane, soft, -1, kernel);
    cv::Mat changed = plane(inner);
    cv::addWeighted(changed, factor, soft(inner), 1 - factor, 0, changed);
    cv::max(changed, 0, changed);
    cv::min(changed, 1, changed);
  });
}

void posterize(const planes& chw, int bits) {
  each_channel_of_bytes(chw, [bits](cv::Mat& bytes) { cv::bitwise_and(bytes, 0xff00 >> bits & 0xff, bytes); });
}

void solarize(const planes& chw, double threshold) {
  each_channel(chw, [threshold](cv::Mat plane) { cv::subtract(1, plane, plane, plane >= threshold); });
}

void autocontrast(const planes& chw) {
  each_channel(chw, [](cv::Mat plane) {
    double least = 0;
    double most = 0;
    cv::minMaxLoc(plane, &least, &most);
    if (most > least) plane.convertTo(plane, CV_32F, 1 / (most - least), -least / (most - least));
  });
}

void equalize(const planes& chw) {
  each_channel_of_bytes(chw, [](cv::Mat& bytes) { cv::equalizeHist(bytes, bytes); });
}

float factor(double s) { return static_cast<float>(1 + 0.9 * s); }

struct operation {
  const char* name;
  void (*change)(const planes& chw, double s);  ///< s: the strength, -1 to 1
};

/// With the formulas and strengths of torchvision's RandAugment on tensors, but for OpenCV's own equalisation.
const operation operations[] = {
    {"identity", [](const planes&, double) {}},
    {"shear_x", [](const planes& p, double s) { move(p, 1, 0.3 * s, 0.15 * s * p.height, 0, 1, 0); }},
    {"shear_y", [](const planes& p, double s) { move(p, 1, 0, 0, 0.3 * s, 1, 0.15 * s * p.width); }},
    {"translate_x", [](const planes& p, double s) { move(p, 1, 0, -std::trunc(p.width * 150 / 331.0 * s), 0, 1, 0); }},
    {"translate_y", [](const planes& p, double s) { move(p, 1, 0, 0, 0, 1, -std::trunc(p.height * 150 / 331.0 * s)); }},
    {"rotate", [](const planes& p, double s) { rotate(p, s * CV_PI / 6); }},
    {"brightness", [](const planes& p, double s) { mill::augment::brightness(p, factor(s)); }},
    {"saturation", [](const planes& p, double s) { mill::augment::saturation(p, factor(s)); }},
    {"contrast", [](const planes& p, double s) { mill::augment::contrast(p, factor(s)); }},
    {"sharpness", [](const planes& p, double s) { sharpness(p, 1 + 0.9 * s); }},
    {"posterize", [](const planes& p, double s) { posterize(p, 8 - cvRound(4 * std::abs(s))); }},
    {"solarize", [](const planes& p, double s) { solarize(p, 1 - std::abs(s)); }},
    {"autocontrast", [](const planes& p, double) { autocontrast(p); }},
    {"equalize", [](const planes& p, double) { equalize(p); }},
};

class rand_augment {
 public:
  int count = 2;          ///< of the operations for an image
  double strength = 0.3;  ///< 0 to 1: torchvision's magnitude of 9 of 30

  /// Called by several threads at once, each with an image of its own.
  void operator()(const mill::pixels<float>& chw, mill::sample_rng& numbers) const {
    for (int i = 0; i < count; ++i) {
      const operation& drawn = operations[numbers.below(std::size(operations))];
      drawn.change(chw, numbers.below(2) == 0 ? strength : -strength);
    }
  }
};

/// Writes the image after each of the operations.
void show_operations(const std::string& folder) {
  constexpr int side = examples::image_side;
  mill::rng random(3);
  const examples::picture painted = examples::paint(1, random);
  const mill::bytes jpeg = mill::bytes::copy(examples::encode_jpeg(painted.pixels, painted.width, painted.height));
  const mill::image_decoder decode(
      mill::image_options{.height = side, .width = side, .layout = mill::image_layout::chw, .type = mill::dtype::f32});
  for (const operation& o : operations) {
    std::vector<float> values(3 * side * side);
    decode.into(mill::tensor_view(values.data(), mill::dtype::f32, decode.dims()), jpeg, random);
    const planes chw(values.data(), 3, side, side);
    o.change(chw, 0.6);
    std::ofstream file(folder + "/" + o.name + ".ppm", std::ios::binary);
    file << "P6 " << side << ' ' << side << " 255\n";
    for (std::size_t i = 0; i < chw.area(); ++i) {
      for (int c = 0; c < 3; ++c) file.put(static_cast<char>(cvRound(255 * static_cast<double>(chw.channel(c)[i]))));
    }
  }
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void train(const std::string& folder, long stop) {
  const std::string state = folder + "/state";
  const mill::image_options images{.height = examples::image_side,
                                   .width = examples::image_side,
                                   .crop = mill::crop::random_resized{},
                                   .flip = 0.5,
                                   .layout = mill::image_layout::chw,
                                   .type = mill::dtype::f32,
                                   .mean = {0.485f, 0.456f, 0.406f},
                                   .std = {0.229f, 0.224f, 0.225f}};
  const mill::dataset data(mill::files(), folder + "/*.tar", {.index = folder + "/index"});
  mill::runtime rt;
  auto run = rt.run(mill::epochs(data, {.seed = 7, .epochs = 2, .batch = 8}, text_of(state)) |
                    mill::decode_images(images, rand_augment{.count = 2, .strength = 0.3}) | mill::batch());
  for (const mill::host_batch& b : run) {
    const mill::tensor_view seen = b.field("image");  // here is the training step
    std::printf("epoch %d, %s and others: images of CRC %08x\n", static_cast<int>(b.mark().epoch),
                std::string(b.keys()[0]).c_str(), mill::crc32c(0, seen.data(), seen.bytes()));
    if (--stop == 0) break;
  }
  std::ofstream(state) << run.state();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2 || count > 3) {
    std::fprintf(stderr, "usage: %s FOLDER [STOP]\n", arguments[0]);
    return 2;
  }
  const std::string folder = arguments[1];
  cv::setNumThreads(0);  // an image has one thread: the pool has as many as there are cores
  try {
    if (!std::filesystem::exists(folder + "/0.tar")) {
      for (int i = 0; i < 2; ++i) {
        std::ofstream(folder + "/" + std::to_string(i) + ".tar", std::ios::binary) << examples::painted_shard(30, 5, i);
      }
      show_operations(folder);
    }
    train(folder, count == 3 ? std::atol(arguments[2]) : 0);
  } catch (const mill::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
