// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

namespace millrace {

/// How one of a batch's images of mixed sizes lies, and what is taken of it. An image_part for each is the field
/// NAME_parts of a batch (u8, samples x 32) beside the ragged field NAME of their pixels: see normalise_images().
///
/// Rows from the top, pixels of red, green and blue, 8 bits each. All zeros is no image: a row of a batch that only
/// fills up.
struct image_part {
  std::int32_t height = 0, width = 0;              ///< of the image, in pixels
  std::int32_t stride = 0;                         ///< from a row to the next, in bytes
  std::int32_t flipped = 0;                        ///< not 0: mirrored, left for right
  float left = 0, top = 0, right = 0, bottom = 0;  ///< the rectangle that is taken, in pixels from the corner
};
static_assert(sizeof(image_part) == 32 && std::is_trivially_copyable_v<image_part>);

}  // namespace millrace
