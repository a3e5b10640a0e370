// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace millrace {

/// Decoded pixels: rows from the top, channels innermost (HWC), 8 bits each, no padding between rows.
class image {
 public:
  image() = default;
  image(std::vector<std::uint8_t> data, int h, int w, int c)
      : pixels(std::move(data)), height(h), width(w), channels(c) {}

  std::vector<std::uint8_t> pixels;  ///< height * width * channels bytes
  int height = 0;
  int width = 0;
  int channels = 0;

  friend std::size_t byte_size(const image& i) noexcept { return i.pixels.size(); }
};

}  // namespace millrace
