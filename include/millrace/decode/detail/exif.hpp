// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::detail {

/// The orientation, 1 to 8, that EXIF data (a TIFF header and its directory; CIPA DC-008) give an image; 1 where they
/// give none, or are damaged.
int exif_orientation(const std::uint8_t* data, std::size_t size) noexcept;

/// How a stored image is turned upright: first mirrored, then transposed.
class orientation {
 public:
  explicit constexpr orientation(int exif = 1) noexcept
      : transposed(exif >= 5),
        mirrored_x(exif == 2 || exif == 3 || exif == 7 || exif == 8),
        mirrored_y(exif == 3 || exif == 4 || exif == 6 || exif == 7) {}

  bool transposed;  ///< columns of the stored image are rows of the upright one
  bool mirrored_x;  ///< in the stored image's directions
  bool mirrored_y;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/impl/exif.ipp>
#endif
