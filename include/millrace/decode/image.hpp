// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <millrace/memory/pixel_buffer.hpp>

namespace millrace {

/// Decoded pixels: rows from the top, channels innermost (HWC), 8 bits each, no padding between rows.
class image {
 public:
  image() = default;
  /// Pixels of a decoder, or a std::vector<std::uint8_t> of your own.
  image(pixel_buffer data, int h, int w, int c) noexcept : pixels(std::move(data)), height(h), width(w), channels(c) {}

  pixel_buffer pixels;  ///< height * width * channels bytes
  int height = 0;
  int width = 0;
  int channels = 0;

  friend std::size_t byte_size(const image& i) noexcept { return i.pixels.size(); }
};

}  // namespace millrace
