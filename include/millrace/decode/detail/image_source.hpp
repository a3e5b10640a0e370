// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/memory/bytes.hpp>

namespace millrace::detail {

/// Pixels of a stored image: from the first to before the last.
class pixel_range {
 public:
  int left = 0, top = 0, right = 0, bottom = 0;
};

/// An image in some format, decoded row by row. Used again for the next one, after an error as well. One thread at a
/// time. Errors: decode_error without a place.
class image_source {
 public:
  image_source() = default;
  image_source(const image_source&) = delete;
  image_source& operator=(const image_source&) = delete;
  virtual ~image_source() = default;

  /// Reads the header. The data must stay until close(). `tolerant`: corrupt data are no error where the format has a
  /// way to go on.
  virtual void open(const bytes& data, bool tolerant) = 0;
  /// Begins to decode at 1/denominator of the size (only for sources with reduces()), for rows of that range at least,
  /// which is in pixels of the reduced image. Returns how many pixels are in each row, and which of the image the first
  /// one is: not after wanted.left.
  virtual void begin(int denominator, const pixel_range& wanted, int& first, int& pixels) = 0;
  /// The next row, from wanted.top on: four bytes a pixel, red, green, blue and one that means nothing.
  virtual void read_row(std::uint8_t* row) = 0;
  /// No more rows are wanted. Throws when the rows that were read were corrupt.
  virtual void finish() = 0;
  /// Lets go of the data. After an error, too.
  virtual void close() noexcept = 0;
  /// Whether begin() takes denominators 2, 4 and 8.
  virtual bool reduces() const noexcept { return false; }

  int width = 0, height = 0;  ///< as stored
  int orientation = 1;        ///< as EXIF counts
  bool plain_jpeg = false;    ///< see undecoded_image, but for what is to be turned
};

}  // namespace millrace::detail
