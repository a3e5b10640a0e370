// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>

#include "examples/common/encode_jpeg.hpp"

namespace bench {

inline constexpr int photo_width = 500;
inline constexpr int photo_height = 375;

/// A JPEG of ImageNet's shape: waves and noise, at the quality that makes about 110 KB of them.
inline std::string make_photo(std::uint64_t seed) {
  std::vector<std::uint8_t> pixels;
  millrace::rng random(seed);
  for (int y = 0; y < photo_height; ++y) {
    for (int x = 0; x < photo_width; ++x) {
      for (int c = 0; c < 3; ++c) {
        const double across = std::sin(x * 0.02 * (c + 1) + static_cast<double>(seed));
        const double wave = 60 * across * std::cos(y * 0.013 * (c + 2));
        pixels.push_back(static_cast<std::uint8_t>(110 + wave + static_cast<double>(random.below(48))));
      }
    }
  }
  std::string jpeg;
  for (int quality = 98; quality > 20 && (jpeg.empty() || jpeg.size() > 112000); quality -= 1) {
    jpeg = examples::encode_jpeg(pixels, photo_width, photo_height, {.quality = quality});
  }
  return jpeg;
}

}  // namespace bench
