// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/image_decoder.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>

#include "test_data_default.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/test_data.hpp"

using namespace millrace;

namespace {

/// The exit status of make_images.py, by whichever Python has Pillow; 77 without.
int make_images(const std::string& folder) {
  const std::string script = std::string(MILLRACE_TEST_SOURCE_DIR) + "/tests/decode/make_images.py";
  int status = 77;
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    const int result = std::system((std::string(python) + " '" + script + "' '" + folder + "'").c_str());
    status = WIFEXITED(result) ? WEXITSTATUS(result) : -1;
    if (status == 127) status = 77;
    if (status != 77) break;
  }
  return status;
}

/// The mean of the differences, of 255; 256 for images of different sizes.
double difference(const std::string& expected, const std::uint8_t* got, std::size_t size) {
  if (expected.size() != size || size == 0) return 256;
  double sum = 0;
  for (std::size_t i = 0; i < size; ++i) sum += std::abs(static_cast<unsigned char>(expected[i]) - got[i]);
  return sum / static_cast<double>(size);
}

std::vector<std::uint8_t> tensor_of(const image_options& options, const bytes& data, rng& numbers) {
  const image_decoder decode(options);
  std::vector<std::uint8_t> pixels(decode.dims().elements());
  decode.into(tensor_view(pixels.data(), dtype::u8, decode.dims()), data, numbers);
  return pixels;
}

}  // namespace

TEST_CASE("a hundred images of all kinds become what Pillow makes of them, crops those of torchvision", "[slow]") {
  const test::temporary_folder folder;
  const int made = make_images(folder.path());
  if (made == 77) MILLRACE_SKIP("Pillow is not installed (Debian: python3-pil)");
  REQUIRE(made == 0);

  std::ifstream index(folder.path() + "/index.txt");
  std::string line;
  std::uint64_t number = 0;
  double worst_full = 0;
  double worst_reduced = 0;
  for (; std::getline(index, line); ++number) {
    CAPTURE(line);
    std::istringstream words(line);
    std::string name, filter;
    int lossless, width, height, out_width, out_height, left, top, crop_width, crop_height, flipped;
    words >> name >> lossless >> width >> height >> filter >> out_width >> out_height >> left >> top >> crop_width >>
        crop_height >> flipped;
    REQUIRE(words);
    const std::string path = folder.path() + "/" + name;
    const bytes data = bytes::copy(test::read_file(path));
    // JPEG and lossy WebP: of another version of their libraries, in Pillow's own package, by one here and there.
    const double same = lossless != 0 ? 0 : 0.5;

    image_options options{.height = out_height, .width = out_width, .reduced_jpegs = false};
    options.filter = filter == "nearest"   ? image_filter::nearest
                     : filter == "bicubic" ? image_filter::bicubic
                     : filter == "lanczos" ? image_filter::lanczos
                                           : image_filter::bilinear;
    const image whole = image_decoder(options).whole(data);
    CHECK(whole.width == width);
    CHECK(whole.height == height);
    CHECK(difference(test::read_file(path + ".whole"), whole.pixels.data(), whole.pixels.size()) <= same);

    rng unused(0);
    const std::vector<std::uint8_t> resized = tensor_of(options, data, unused);
    // The wider filters overshoot, which Pillow cuts off after the first step, too. Of two pixels whose border is under
    // a centre, nearest may take either.
    const double other = filter == "bilinear" ? 0 : filter == "nearest" ? 1.7 : 0.2;
    CHECK(difference(test::read_file(path + ".resized"), resized.data(), resized.size()) <= 0.3 + same + other);

    const image_options middle{.height = 224, .width = 224, .crop = crop::center{}, .reduced_jpegs = false};
    const std::vector<std::uint8_t> centre = tensor_of(middle, data, unused);
    CHECK(difference(test::read_file(path + ".center"), centre.data(), centre.size()) <= 0.3 + same);

    image_options random{.height = 48, .width = 64, .crop = crop::random_resized{}, .flip = 0.5};
    random.reduced_jpegs = false;
    const std::string expected = test::read_file(path + ".crop");
    rng numbers(number);
    const image_box box = image_crop(crop::random_resized{}).box(width, height, 64, 48, numbers);
    CHECK(box == image_box(left, top, left + crop_width, top + crop_height));
    CHECK((numbers.uniform() < 0.5) == (flipped != 0));
    rng again(number);
    const std::vector<std::uint8_t> full = tensor_of(random, data, again);
    const double full_difference = difference(expected, full.data(), full.size());
    CHECK(full_difference <= 0.3 + same);
    worst_full = std::max(worst_full, full_difference);

    // JPEGs decoded at a fraction of their size.
    random.reduced_jpegs = true;
    rng once_more(number);
    const std::vector<std::uint8_t> reduced = tensor_of(random, data, once_more);
    const double reduced_difference = difference(expected, reduced.data(), reduced.size());
    CHECK(reduced_difference <= 4);
    worst_reduced = std::max(worst_reduced, reduced_difference);
  }
  CHECK(number >= 100);
  CHECK(worst_reduced > worst_full);  // some were reduced
  INFO("worst " << worst_full << " and " << worst_reduced);
  CHECK(worst_full <= 0.8);
  std::filesystem::remove_all(folder.path());
}
