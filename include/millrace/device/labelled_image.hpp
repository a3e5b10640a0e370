// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <millrace/data/origin.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/memory/pixel_buffer.hpp>

namespace millrace {

/// The most common sample: an 8-bit image of a fixed size and a class number. Batches of it have the fields "image"
/// (u8, height x width x channels) and "label" (i64), and tags<origin>() where the images have one.
class labelled_image {
 public:
  /// `data`: of an image, or a std::vector<std::uint8_t> of your own.
  labelled_image(std::string name, pixel_buffer data, std::int64_t h, std::int64_t w, std::int64_t c,
                 std::int64_t number, origin where_from = origin())
      : key(std::move(name)),
        pixels(std::move(data)),
        height(h),
        width(w),
        channels(c),
        label(number),
        from(std::move(where_from)) {}

  std::string key;
  pixel_buffer pixels;  ///< row by row, channels innermost
  std::int64_t height, width, channels;
  std::int64_t label;
  origin from;  ///< that of the sample, for errors and for who looks at a batch

  friend std::size_t byte_size(const labelled_image& i) noexcept { return i.pixels.size(); }
};

/// Throws decode_error when the pixels do not fill the image.
template <class = void>
void collate(const labelled_image& image, sample_writer& out) {
  const shape dims{image.height, image.width, image.channels};
  if (dims.elements() != image.pixels.size()) {
    throw decode_error("an image of " + dims.text() + " has " + std::to_string(image.pixels.size()) + " bytes",
                       image.from.at(image.key));
  }
  out.key(image.key);
  if (image.from) out.tag(image.from);
  out.write("image", image.pixels.data(), dims);
  out.write("label", image.label);
}

}  // namespace millrace
