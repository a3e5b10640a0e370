// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/augment.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>

#include "test_data_default.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/test_data.hpp"

using namespace millrace;

namespace {

/// One pixel of red, green and blue, after `f`.
template <class F>
std::vector<float> after(std::vector<float> colours, F f) {
  f(pixels<float>(colours.data(), 3, 1, static_cast<int>(colours.size() / 3)));
  return colours;
}

bool alike(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) { return std::abs(x - y) < 1e-6F; });
}

std::vector<float> ramp(int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
  return values;
}

tensor_view rows_of(std::vector<float>& values, std::int64_t rows, std::int64_t height, std::int64_t width) {
  return tensor_view(values.data(), dtype::f32, shape{rows, 1, height, width});
}

}  // namespace

TEST_CASE("colours change by the formulas") {
  CHECK(alike(after({0.2F, 0.5F, 0.8F}, [](const auto& p) { augment::brightness(p, 1.5F); }), {0.3F, 0.75F, 1}));
  const float grey = 0.2989F * 0.2F + 0.587F * 0.5F + 0.114F * 0.8F;
  CHECK(alike(after({0.2F, 0.5F, 0.8F}, [](const auto& p) { augment::greyscale(p); }), {grey, grey, grey}));
  CHECK(alike(after({0.2F, 0.5F, 0.8F}, [](const auto& p) { augment::saturation(p, 0.5F); }),
              {(0.2F + grey) / 2, (0.5F + grey) / 2, (0.8F + grey) / 2}));
  CHECK(alike(after({0.2F, 0.4F, 0.2F, 0.4F, 0.2F, 0.4F}, [](const auto& p) { augment::contrast(p, 2); }),
              {0.4F - 0.29997F, 0.8F - 0.29997F, 0.4F - 0.29997F, 0.8F - 0.29997F, 0.4F - 0.29997F, 0.8F - 0.29997F}));
  // A third of the circle: red becomes green, green blue, blue red.
  CHECK(alike(
      after({0.9F, 0.2F, 0.1F, 0.4F, 0.9F, 0.1F, 0.1F, 0.1F, 0.4F}, [](const auto& p) { augment::hue(p, 1.0F / 3); }),
      {0.1F, 0.1F, 0.4F, 0.9F, 0.2F, 0.1F, 0.4F, 0.9F, 0.1F}));
}

TEST_CASE("rectangles are erased inside of the image, and images turned counterclockwise") {
  std::vector<float> values = ramp(9);
  const pixels<float> p(values.data(), 1, 3, 3);
  augment::rotate(p, 90);
  CHECK(values == std::vector<float>{2, 5, 8, 1, 4, 7, 0, 3, 6});
  augment::erase(p, 2, 1, 5, 1, 9);
  CHECK(values == std::vector<float>{2, 5, 8, 1, 4, 7, 0, 9, 6});
  augment::erase(p, -1, -1, 2, 2);
  CHECK(values == std::vector<float>{0, 5, 8, 1, 4, 7, 0, 9, 6});
  CHECK_THROWS_AS(augment::rotate(p, 1, image_filter::lanczos), configuration_error);
}

TEST_CASE("a blur mirrors the edges, and keeps an even image") {
  std::vector<float> even(35, 0.5F);
  augment::gaussian_blur(pixels<float>(even.data(), 1, 5, 7), 5, 2);
  CHECK(alike(even, std::vector<float>(35, 0.5F)));
  std::vector<float> column = {0, 1, 0, 0, 0, 0};
  augment::gaussian_blur(pixels<float>(column.data(), 1, 3, 2), 3, 1);
  const float side = std::exp(-0.5F) / (1 + 2 * std::exp(-0.5F));
  // Of a row of two, 0 and 1, each column is the other's neighbour on both sides.
  CHECK(alike(column, {(1 - 2 * side) * 2 * side, (1 - 2 * side) * (1 - 2 * side), side * 2 * side,
                       side * (1 - 2 * side), 0, 0}));
  for (const int size : {0, 2, 5}) {
    CHECK_THROWS_AS(augment::gaussian_blur(pixels<float>(column.data(), 1, 3, 2), size, 1), configuration_error);
  }
}

TEST_CASE("jitter and erasing are functions of the random numbers") {
  const augment::color_jitter jitter{.brightness = 0.4F, .contrast = 0.4F, .saturation = 0.4F, .hue = 0.1F};
  const augment::random_erasing erasing{.probability = 1, .value = 2};
  std::vector<std::vector<float>> seen;
  for (const std::uint64_t seed : {1u, 1u, 2u}) {
    std::vector<float> values(3 * 20 * 20, 0.5F);
    for (std::size_t i = 0; i < 400; ++i) values[i] = static_cast<float>(i) / 400;
    sample_rng numbers(seed, 0, 0, 0, 0);
    const pixels<float> p(values.data(), 3, 20, 20);
    jitter(p, numbers);
    for (const float v : values) REQUIRE((v >= 0 && v <= 1));
    erasing(p, numbers);
    const auto erased = std::count(values.begin(), values.end(), 2.0F);
    CHECK(erased % 3 == 0);
    CHECK((erased >= 3 * 4 && erased <= 3 * 150));
    seen.push_back(values);
  }
  CHECK(seen[0] == seen[1]);
  CHECK(seen[0] != seen[2]);
}

TEST_CASE("mixup mixes each row with the one before it, cutmix a rectangle of it") {
  std::vector<float> images = ramp(3 * 5 * 4);
  std::vector<float> labels = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  const tensor_view marks(labels.data(), dtype::f32, shape{3, 3});
  augment::mixup(rows_of(images, 3, 5, 4), marks, 0.75F);
  CHECK(images[0] == 10);   // 0.25 * 40
  CHECK(images[20] == 15);  // 0.75 * 20 + 0.25 * 0
  CHECK(images[59] == 54);  // 0.75 * 59 + 0.25 * 39
  CHECK(labels == std::vector<float>{0.75F, 0, 0.25F, 0.25F, 0.75F, 0, 0, 0.25F, 0.75F});

  images = ramp(3 * 4 * 4);
  labels = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  augment::cutmix(rows_of(images, 3, 4, 4), marks, 0.75F, 1, 3);  // rows 0 to 2, columns 2 to 4
  CHECK(images[2] == 34);
  CHECK(images[1] == 1);
  CHECK(images[16 + 7] == 7);
  CHECK(images[32 + 8] == 40);
  CHECK(labels == std::vector<float>{0.75F, 0, 0.25F, 0.25F, 0.75F, 0, 0, 0.25F, 0.75F});
  CHECK_THROWS_AS(augment::mixup(rows_of(images, 3, 4, 4), marks, 1.5F), configuration_error);
  CHECK_THROWS_AS(augment::cutmix(rows_of(images, 3, 4, 4), marks, -1, 0, 0), configuration_error);
  CHECK_THROWS_AS(augment::cutmix(rows_of(images, 3, 4, 4), marks, 0.5F, -1, 0), configuration_error);
  std::vector<std::uint8_t> narrow(3);
  CHECK_THROWS_WITH(
      augment::mixup(tensor_view(narrow.data(), dtype::u8, shape{3, 1}), marks, 1),
      "mixed are images and labels of f32, a row a sample, not u8 3x1 and f32 3x3 (image_options::one_hot "
      "makes such labels)");
}

TEST_CASE("numbers of Beta(alpha, alpha) have its mean and variance") {
  for (const double alpha : {0.01, 0.2, 1.0, 5.0}) {
    CAPTURE(alpha);
    sample_rng numbers(3, 0, 0, 0, 0);
    double sum = 0;
    double squares = 0;
    constexpr int n = 20000;
    for (int i = 0; i < n; ++i) {
      const double x = augment::beta(alpha, numbers);
      REQUIRE((x >= 0 && x <= 1));
      sum += x;
      squares += (x - 0.5) * (x - 0.5);
    }
    CHECK(std::abs(sum / n - 0.5) < 0.015);
    CHECK(std::abs(squares / n * 4 * (2 * alpha + 1) - 1) < 0.05);
  }
}

TEST_CASE("images change as torchvision's transforms.v2 change them", "[outside]") {
  const test::temporary_folder folder;
  const char* const named = std::getenv("MILLRACE_TORCHVISION_PYTHON");
  const std::string command = std::string(named == nullptr ? "python3" : named) + " '" + MILLRACE_TEST_SOURCE_DIR +
                              "/tests/decode/torchvision_augment.py' '" + folder.path() + "'";
  const int status = std::system(command.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 77 || code == 127) {
    MILLRACE_SKIP("torchvision is not installed (MILLRACE_TORCHVISION_PYTHON names a Python that has it)");
  }
  REQUIRE(code == 0);
  const auto floats_of = [&](const std::string& name) {
    const std::string data = test::read_file(folder.path() + "/" + name);
    std::vector<float> values(data.size() / sizeof(float));
    std::memcpy(values.data(), data.data(), data.size());
    return values;
  };
  const std::vector<float> image = floats_of("image");
  REQUIRE(image.size() == 3 * 37 * 50);
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string file = entry.path().filename().string();
    if (file == "image") continue;
    CAPTURE(file);
    const std::string name = file.substr(0, file.find(' '));
    const float x = std::stof(file.substr(file.find(' ')));
    std::vector<float> got = image;
    const pixels<float> p(got.data(), 3, 37, 50);
    if (name == "brightness") augment::brightness(p, x);
    if (name == "contrast") augment::contrast(p, x);
    if (name == "saturation") augment::saturation(p, x);
    if (name == "hue") augment::hue(p, x);
    if (name == "greyscale") augment::greyscale(p);
    if (name == "erase") augment::erase(p, 5, 7, 11, 13, x);
    if (name == "nearest") augment::rotate(p, static_cast<double>(x));
    if (name == "bilinear") augment::rotate(p, static_cast<double>(x), image_filter::bilinear);
    if (name == "filled") augment::rotate(p, static_cast<double>(x), image_filter::bilinear, 0.5F);
    if (name == "blur") augment::gaussian_blur(p, 9, static_cast<double>(x));
    const std::vector<float> wanted = floats_of(file);
    REQUIRE(wanted.size() == got.size());
    double worst = 0;
    int far = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double difference = static_cast<double>(std::abs(got[i] - wanted[i]));
      worst = std::max(worst, difference);
      far += difference > 1e-4;
    }
    CAPTURE(worst, far);
    // Nearest: where a pixel comes from between two, float and double may choose differently.
    CHECK(far <= (name == "nearest" ? 6 : 0));
    ++compared;
  }
  CHECK(compared == 37);
}
