// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <millrace/decode/crop.hpp>
#include <millrace/decode/image_options.hpp>

namespace millrace::detail {

/// What an image becomes: of `columns` x `rows` pixels those in `box`, `width` x `height` of them. The filter reaches
/// pixels beside the box where there are any, and reflects the image along its edges.
class resize_geometry {
 public:
  int columns = 0, rows = 0;
  image_box box;
  int width = 0, height = 0;
  image_filter filter = image_filter::bilinear;
  friend bool operator==(const resize_geometry&, const resize_geometry&) noexcept = default;
};

/// Resizes images of three channels of 8 bits, by zimg. Keeps its memory for the next one and, for one of the same
/// geometry, what zimg has prepared. The result is the same to the bit on every processor. One thread at a time.
class resizer {
 public:
  /// `plain`: without vectors, for tests.
  explicit resizer(bool plain = false);
  resizer(resizer&&) noexcept;
  resizer& operator=(resizer&&) noexcept;
  ~resizer();

  /// Begins an image. Throws decode_error for one that zimg cannot resize so, and std::bad_alloc.
  void begin(const resize_geometry& g);
  /// Row `y` of the image: four bytes a pixel, red, green, blue and one that means nothing.
  void put_row(int y, const std::uint8_t* row) noexcept;
  /// After the last row.
  void run();
  /// Row `y` of the result, one byte a pixel, of channel 0, 1 or 2. Stays until the next begin().
  const std::uint8_t* row(int channel, std::size_t y) const noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/impl/resizer.ipp>
#endif
