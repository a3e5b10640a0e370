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
#include <millrace/device/image_part.hpp>

namespace millrace {

MILLRACE_INLINE void write_image(sample_writer& out, const char* name, const image& i, const image_box& box,
                                 bool flipped) {
  const shape dims{i.height, i.width, i.channels};
  if (i.channels != 3 || i.width > std::numeric_limits<std::int32_t>::max() / 3 || dims.elements() == 0 ||
      dims.elements() != i.pixels.size()) {
    throw decode_error("an image of " + dims.text() + " with " + std::to_string(i.pixels.size()) +
                       " bytes is not one of three channels");
  }
  if (!(box.left >= 0 && box.left < box.right && box.right <= i.width && box.top >= 0 && box.top < box.bottom &&
        box.bottom <= i.height)) {
    throw decode_error("the part of an image of " + dims.text() + " that is taken is not inside of it");
  }
  image_part part;
  part.height = i.height;
  part.width = i.width;
  part.stride = 3 * i.width;
  part.flipped = flipped ? 1 : 0;
  part.left = static_cast<float>(box.left);
  part.top = static_cast<float>(box.top);
  part.right = static_cast<float>(box.right);
  part.bottom = static_cast<float>(box.bottom);
  std::uint8_t record[sizeof part];
  std::memcpy(record, &part, sizeof part);
  out.ragged(name, std::span<const std::uint8_t>(i.pixels.data(), i.pixels.size()));
  out.write((std::string(name) + "_parts").c_str(), std::span<const std::uint8_t>(record));
}

}  // namespace millrace
