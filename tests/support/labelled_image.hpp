// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/decode/image.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/memory/pixel_pool.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::test {

/// An item with a collate(): an 8-bit image and a class number. Batches have the fields "image" (u8, height x width x
/// channels) and "label" (i64), and tags<origin>() where the samples have one.
class labelled_image {
 public:
  labelled_image(const sample& s, image decoded, std::int64_t number)
      : key(s.key),
        pixels(std::move(decoded.pixels)),
        height(decoded.height),
        width(decoded.width),
        channels(decoded.channels),
        label(number),
        from(s.from) {}

  std::string key;
  pixel_buffer pixels;
  std::int64_t height, width, channels;
  std::int64_t label;
  origin from;

  friend std::size_t byte_size(const labelled_image& i) noexcept { return i.pixels.size(); }
};

/// Throws decode_error when the pixels do not fill the image.
inline void collate(const labelled_image& image, sample_writer& out) {
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

}  // namespace millrace::test
