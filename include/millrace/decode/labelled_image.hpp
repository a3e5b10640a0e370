// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <millrace/data/origin.hpp>
#include <millrace/decode/image.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/memory/pixel_buffer.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace {

/// What becomes of the most common sample: an 8-bit image of a fixed size and a class number. Batches of it have the
/// fields "image" (u8, height x width x channels) and "label" (i64), and tags<origin>() where the samples have one.
class labelled_image {
 public:
  /// The image and the number that were decoded from `s`, whose key and origin it takes along.
  labelled_image(const sample& s, image decoded, std::int64_t number)
      : key(s.key),
        pixels(std::move(decoded.pixels)),
        height(decoded.height),
        width(decoded.width),
        channels(decoded.channels),
        label(number),
        from(s.from) {}

  std::string key;
  pixel_buffer pixels;  ///< row by row, channels innermost
  std::int64_t height, width, channels;
  std::int64_t label;
  origin from;  ///< that of the sample, for errors and for who looks at a batch

  friend std::size_t byte_size(const labelled_image& i) noexcept { return i.pixels.size(); }
};

/// Throws decode_error when the pixels do not fill the image.
void collate(const labelled_image& image, sample_writer& out);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/impl/labelled_image.ipp>
#endif
