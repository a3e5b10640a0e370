// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <millrace/base/compiler.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/tensor.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The layout of one of a batch's images of mixed sizes, and the box to take from it. An image_part for each is the
/// field NAME_parts of a batch (u8, samples x 32) beside the ragged field NAME of their pixels: see normalise_images().
///
/// Rows from the top, pixels of red, green and blue, 8 bits each. All zeros is no image: a padding row.
struct image_part {
  std::int32_t height = 0, width = 0;              ///< of the image, in pixels
  std::int32_t stride = 0;                         ///< from a row to the next, in bytes
  std::int32_t flipped = 0;                        ///< not 0: mirrored, left for right
  float left = 0, top = 0, right = 0, bottom = 0;  ///< the rectangle that is taken, in pixels from the corner
};
static_assert(sizeof(image_part) == 32 && std::is_trivially_copyable_v<image_part>);

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// The work of normalise_images(): the argument of its kernel, with pointers of the device. Its functions are the same
/// ones on a GPU and on the host.
struct pixel_work {
  const std::uint8_t* pixels = nullptr;
  std::int64_t bytes = 0;                 // of all pixels
  const std::int64_t* offsets = nullptr;  // of each image's first byte; null: images of one size, contiguous
  const image_part* parts = nullptr;      // null: all of each image
  image_part whole;                       // for images of one size
  void* to = nullptr;
  std::int64_t images = 0;
  int height = 0, width = 0;  // of the result
  float mean[3] = {}, std[3] = {};
};

/// The pixels of a row or a column that one pixel of the result is made of, and their weights: a triangle that widens
/// as the image shrinks. If the size stays and edges fall between pixels, one counts 1 and its neighbour 0.
struct pixel_taps {
  int first, last;
  float centre, reach;

  MILLRACE_HOST_DEVICE pixel_taps(float from, float to, int n, int i) noexcept {
    const float scale = (to - from) / static_cast<float>(n);
    reach = scale > 1 ? scale : 1;
    centre = from + (static_cast<float>(i) + 0.5f) * scale;
    const int begin = static_cast<int>(from);
    const int end = static_cast<int>(to) + (to > static_cast<float>(static_cast<int>(to)) ? 1 : 0);
    first = static_cast<int>(centre - reach + 0.5f);
    last = static_cast<int>(centre + reach + 0.5f);
    if (first < begin) first = begin;
    if (last > end) last = end;
  }
  MILLRACE_HOST_DEVICE float weight(int i) const noexcept {
    const float away = (static_cast<float>(i) + 0.5f - centre) / reach;
    const float left = away < 0 ? 1 + away : 1 - away;
    return left > 0 ? left : 0;
  }
};

template <dtype Type>
MILLRACE_HOST_DEVICE void store_value(void* to, std::int64_t i, float value) noexcept {
  static_assert(Type == dtype::f16 || Type == dtype::bf16 || Type == dtype::f32);
  if constexpr (Type == dtype::f32) {
    static_cast<float*>(to)[i] = value;
  } else {
    static_cast<std::uint16_t*>(to)[i] = Type == dtype::f16 ? to_f16(value) : to_bf16(value);
  }
}

/// Writes the pixel at `x`, `y` of image `i` of the result, into its three channels.
template <dtype Type>
MILLRACE_HOST_DEVICE void write_pixel(const pixel_work& w, std::int64_t i, int y, int x) noexcept {
  const image_part part = w.parts == nullptr ? w.whole : w.parts[i];
  const std::uint8_t* const image =
      w.pixels + (w.offsets == nullptr ? i * part.height * static_cast<std::int64_t>(part.stride) : w.offsets[i]);
  const std::int64_t plane = static_cast<std::int64_t>(w.height) * w.width;
  const std::int64_t at = i * 3 * plane + static_cast<std::int64_t>(y) * w.width + x;
  if (part.height == 0) {  // a padding row
    for (int c = 0; c < 3; ++c) store_value<Type>(w.to, at + c * plane, 0);
    return;
  }
  const pixel_taps down(part.top, part.bottom, w.height, y);
  const pixel_taps across(part.left, part.right, w.width, part.flipped != 0 ? w.width - 1 - x : x);
  float sum[3] = {0, 0, 0};
  float weights = 0;
  for (int v = down.first; v < down.last; ++v) {
    const std::uint8_t* const row = image + v * static_cast<std::int64_t>(part.stride);
    for (int u = across.first; u < across.last; ++u) {
      const float weight = down.weight(v) * across.weight(u);
      weights += weight;
      for (int c = 0; c < 3; ++c) sum[c] += weight * static_cast<float>(row[3 * u + c]);
    }
  }
  for (int c = 0; c < 3; ++c) {
    store_value<Type>(w.to, at + c * plane, (sum[c] / weights / 255.0f - w.mean[c]) / w.std[c]);
  }
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// Values of the channels red, green and blue, for values from 0 to 1.
struct normalise_options {
  std::array<float, 3> mean = {0, 0, 0};
  std::array<float, 3> std = {1, 1, 1};
};

/// Converts the images of a batch, 8 bits a channel, HWC, to a network's input: `to`, a tensor of the program's own, of
/// at least b.size() x 3 x height x width (CHW), f16, bf16 or f32, gets (value / 255 - mean) / std, rounded to nearest.
///
/// This is for a batch of host_device, on the calling thread, one value after the other: to try a program without a
/// GPU. The one for a GPU is in cuda/normalise_images.hpp, and does the same: a batch of bytes is a quarter of one of
/// f32, and half of one of f16, on its way through memory and over PCIe.
///
/// The field is one of two kinds:
/// - u8, samples x H x W x 3, made by decode_images() unless told otherwise: then it has cropped and flipped.
/// - ragged (sample_writer::ragged()): u8, the pixels of images of mixed sizes, with the fields FIELD_offsets, and
///   FIELD_parts, which has for each the crop and the flip: written by write_image(). Padding rows become zeros.
///
/// A part that has the size of the result, with edges between pixels, is taken as it is: decode_images() gives the same
/// to the bit. Any other is resized by a triangle that widens as the image shrinks (image_filter::bilinear, without
/// that one's rounding to 8 bits between); pixels beside the part do not count.
///
/// Call the batch's wait() before and its release() after, as for other work on it. Errors:
/// configuration_error for tensors of other shapes or types, a std that is not above 0, a batch of another device;
/// decode_error, which names the sample, for a part that is not inside of its image, or an image that is not inside of
/// its bytes.
void normalise_images(const device_batch& b, std::string_view field, const tensor_view& to,
                      const normalise_options& options = {});

namespace detail {
/// The work for this batch, after its checks on the host.
pixel_work pixel_work_of(const device_batch& b, std::string_view field, const tensor_view& to,
                         const normalise_options& options);
}  // namespace detail

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/normalise_images.ipp>
#endif
