// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/write_image.hpp>
#include <millrace/device/normalise_images.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// Writes the part to take of an image of `dims`.
MILLRACE_INLINE void write_part(sample_writer& out, const char* name, const shape& dims, const image_box& box,
                                bool flipped) {
  const auto height = static_cast<std::int32_t>(dims[0]);
  const auto width = static_cast<std::int32_t>(dims[1]);
  if (!(box.left >= 0 && box.left < box.right && box.right <= width && box.top >= 0 && box.top < box.bottom &&
        box.bottom <= height)) {
    throw decode_error("the part of an image of " + dims.text() + " that is taken is not inside of it");
  }
  image_part part;
  part.height = height;
  part.width = width;
  part.stride = 3 * width;
  part.flipped = flipped ? 1 : 0;
  part.left = static_cast<float>(box.left);
  part.top = static_cast<float>(box.top);
  part.right = static_cast<float>(box.right);
  part.bottom = static_cast<float>(box.bottom);
  std::uint8_t record[sizeof part];
  std::memcpy(record, &part, sizeof part);
  out.write((std::string(name) + "_parts").c_str(), std::span<const std::uint8_t>(record));
}

}  // namespace detail

MILLRACE_INLINE void write_image(sample_writer& out, const char* name, const image& i, const image_box& box,
                                 bool flipped) {
  const shape dims{i.height, i.width, i.channels};
  if (i.channels != 3 || i.width > std::numeric_limits<std::int32_t>::max() / 3 || dims.elements() == 0 ||
      dims.elements() != i.pixels.size()) {
    throw decode_error("an image of " + dims.text() + " with " + std::to_string(i.pixels.size()) +
                       " bytes is not one of three channels");
  }
  out.ragged(name, std::span<const std::uint8_t>(i.pixels.data(), i.pixels.size()));
  detail::write_part(out, name, dims, box, flipped);
}

MILLRACE_INLINE void write_image(sample_writer& out, const char* name, const undecoded_image& i, const image_box& box,
                                 bool flipped) {
  if (i.on_host == nullptr || i.pixel_bytes() == 0) throw decode_error("an undecoded_image is no image");
  out.room_on_device(name, i.pixel_bytes());
  detail::write_part(out, name, shape{i.height, i.width, 3}, box, flipped);
  out.tag(i);
}

}  // namespace millrace
