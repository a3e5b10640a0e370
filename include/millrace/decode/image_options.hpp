// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include <millrace/base/short_text.hpp>
#include <millrace/decode/crop.hpp>
#include <millrace/device/dtype.hpp>

namespace millrace {

/// How pixels are weighed when an image changes its size. When it becomes smaller, the filter's support grows with the
/// factor (antialiasing), as in Pillow and in torchvision with antialias=True; but for `nearest`.
enum class image_filter : std::uint8_t {
  nearest,   ///< the pixel under the centre
  bilinear,  ///< a triangle, 1 pixel to each side
  bicubic,   ///< Keys' cubic with a = -1/2, 2 pixels to each side
  lanczos    ///< sinc times sinc, 3 pixels to each side
};

/// Where the channels of a tensor stand: hwc has them innermost, chw outermost.
enum class image_layout : std::uint8_t { hwc, chw };

/// What images become: see image_decoder and decode_images().
struct image_options {
  int height = 0;                                     ///< of the tensor, in pixels; needed
  int width = 0;                                      ///< of the tensor, in pixels; needed
  ::millrace::image_crop crop = ::millrace::crop::none;  ///< the part of the image that is resized to that
  double flip = 0;                                    ///< the probability that it is mirrored, left for right
  image_filter filter = image_filter::bilinear;
  image_layout layout = image_layout::hwc;
  dtype type = dtype::u8;  ///< u8: 0 to 255. f16, bf16, f32: (value / 255 - mean) / std, rounded to nearest
  ::std::array<float, 3> mean = {0, 0, 0};  ///< of red, green and blue; for the floating-point types
  ::std::array<float, 3> std = {1, 1, 1};
  bool upright = true;          ///< turns images as their EXIF orientation says
  bool reduced_jpegs = true;    ///< decodes JPEGs at 1/2, 1/4 or 1/8 where that is still 1.5 times the wanted size
  bool tolerate_corruption = false;                   ///< accepts JPEGs with corrupt data; else they are an error
  std::uint64_t max_pixels = std::uint64_t(1) << 28;  ///< larger images are refused before memory is allocated for them
  short_text<32> field = "";      ///< of a sample; empty: its first field that is an image by content
  short_text<32> label = "cls";   ///< of a sample: a class number for the tensor "label"; empty: no such tensor
};

}  // namespace millrace
