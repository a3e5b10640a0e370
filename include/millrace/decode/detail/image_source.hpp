// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/detail/first_time.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The orientation, 1 to 8, that EXIF data (a TIFF header and its directory; CIPA DC-008) give an image, with the
/// prefix "Exif\0\0" or without it. The number may be of any numeric type: cameras write SHORT, as the standard says,
/// and programs LONG and others. 1 if the number is none of these, 0 if the data give none or are damaged.
int exif_orientation(std::string_view data) noexcept;

/// The orientation of an XMP packet (tiff:Orientation as an attribute or an element), which counts if EXIF gives none;
/// 0 if the packet gives none.
int xmp_orientation(std::string_view packet) noexcept;

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

  /// Reads the header. The data must stay until close(). `tolerant`: corrupt data are no error if the format has a
  /// way to go on.
  virtual void open(const bytes& data, bool tolerant) = 0;
  /// Begins to decode at 1/denominator of the size (only for sources with reduces()), for rows of that range at least,
  /// which is in pixels of the reduced image. Returns how many pixels are in each row, and which of the image the first
  /// one is: not after wanted.left.
  virtual void begin(int denominator, const pixel_range& wanted, int& first, int& pixels) = 0;
  /// The next row, from wanted.top on: four bytes a pixel, red, green, blue and one that means nothing; without the
  /// fourth if `packed`.
  virtual void read_row(std::uint8_t* row) = 0;
  /// No more rows are wanted. Throws when the rows that were read were corrupt.
  virtual void finish() = 0;
  /// Drops the data. After an error, too.
  virtual void close() noexcept = 0;
  /// True if begin() takes denominators 2, 4 and 8.
  virtual bool reduces() const noexcept { return false; }
  /// True if the open image can have packed rows.
  virtual bool packs() const noexcept { return false; }
  /// The reason why the open image has no class numbers; null if it has.
  virtual const char* no_numbers() const noexcept { return "only those of PNGs are"; }

  bool packed = false;        ///< rows of three bytes a pixel: to be set before begin(), only if packs()
  bool numbers = false;       ///< class numbers in the place of red: to be set before begin(), see no_numbers()
  int width = 0, height = 0;  ///< as stored
  int orientation = 1;        ///< as EXIF counts
  bool plain_jpeg = false;    ///< see undecoded_image; whatever its orientation
  /// A fault of the data that cost no pixel; null: none, as far as they have been read. Valid until the next open().
  const char* oddity = nullptr;
  const char* oddity_kind = nullptr;  ///< equal for all of a kind; constant
};

/// Once for each kind.
inline void say_oddity(const image_source& source, const where& at) {
  const std::string text = std::string(source.oddity) + " (no pixel is lost: taken, as are all others like it)";
  say_first(source.oddity_kind, text, at);
}

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/image_source.ipp>
#endif
