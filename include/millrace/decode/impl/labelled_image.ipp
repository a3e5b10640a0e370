// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/labelled_image.hpp>

namespace millrace {

MILLRACE_INLINE void collate(const labelled_image& image, sample_writer& out) {
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
