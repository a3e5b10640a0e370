// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/device/detail/narrow_float.hpp>
#include <millrace/device/dtype.hpp>
#include <millrace/device/image_part.hpp>

namespace millrace::detail {

/// What normalise_images() does: the argument of its kernel, where all pointers are the device's. Its functions are the
/// same ones on a GPU and on the host.
struct pixel_work {
  const std::uint8_t* pixels = nullptr;
  std::int64_t bytes = 0;                 // of all pixels
  const std::int64_t* offsets = nullptr;  // of each image's first byte; null: images of one size, one behind the other
  const image_part* parts = nullptr;      // null: all of each image
  image_part whole;                       // what images of one size are
  void* to = nullptr;
  std::int64_t images = 0;
  int height = 0, width = 0;  // of the result
  float mean[3] = {}, std[3] = {};
};

/// The pixels of a row or a column that one pixel of the result is made of, and how they count: a triangle, as wide as
/// the image shrinks. Where the size stays and edges fall between pixels, one counts 1 and its neighbour 0.
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
