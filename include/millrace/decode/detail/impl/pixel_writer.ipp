// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/decode/detail/pixel_vectors.hpp>
#include <millrace/decode/detail/pixel_writer.hpp>
#include <millrace/decode/image_options.hpp>

namespace millrace::detail {

/// Pixels of a row, from the first one that is given on, of values `value(c, v)` of the channels' rows.
template <class T, class Value>
void store_pixels(T* tensor, image_layout layout, std::size_t width, std::size_t height, std::size_t y,
                  std::size_t first, const std::uint8_t* const* channels, bool mirrored, Value value) noexcept {
  for (std::size_t c = 0; c < 3; ++c) {
    const std::uint8_t* from = mirrored ? channels[c] + width - 1 - first : channels[c] + first;
    const std::ptrdiff_t step = mirrored ? -1 : 1;
    if (layout == image_layout::hwc) {
      T* const to = tensor + y * width * 3 + c;
      for (std::size_t x = first; x < width; ++x, from += step) to[x * 3] = value(c, *from);
    } else {
      T* const to = tensor + (c * height + y) * width;
      for (std::size_t x = first; x < width; ++x, from += step) to[x] = value(c, *from);
    }
  }
}

MILLRACE_INLINE pixel_writer::pixel_writer(const image_options& o) : layout_(o.layout), type_(o.type) {
  const bool floating = type_ == dtype::f16 || type_ == dtype::bf16 || type_ == dtype::f32;
  if (!floating && type_ != dtype::u8) {
    throw configuration_error(std::string("images become u8, f16, bf16 or f32, not ") + name_of(type_));
  }
  if (!floating) {
    if (o.mean != image_options().mean || o.std != image_options().std) {
      throw configuration_error("mean and std are for images of floating-point types, not for u8");
    }
#if defined(__x86_64__)
    vectors_ = layout_ == image_layout::hwc && has_avx2();
#endif
    return;
  }
  if (type_ == dtype::f32) {
    wide_.resize(3 * 256);
  } else {
    narrow_.resize(3 * 256);
  }
  for (std::size_t c = 0; c < 3; ++c) {
    if (!(o.std[c] > 0)) throw configuration_error("the std of an image's channel is a number above 0");
    for (std::size_t v = 0; v < 256; ++v) {
      const float value = (static_cast<float>(v) / 255.0f - o.mean[c]) / o.std[c];
      if (type_ == dtype::f32) wide_[c * 256 + v] = value;
      if (type_ == dtype::f16) narrow_[c * 256 + v] = to_f16(value);
      if (type_ == dtype::bf16) narrow_[c * 256 + v] = to_bf16(value);
    }
    scale_[c] = static_cast<float>(1 / (255.0 * static_cast<double>(o.std[c])));
    offset_[c] = static_cast<float>(-static_cast<double>(o.mean[c]) / static_cast<double>(o.std[c]));
  }
#if defined(__x86_64__)
  vectors_ = type_ != dtype::f32 && has_avx2() && is_linear();
#endif
}

MILLRACE_INLINE void pixel_writer::write(void* tensor, std::size_t width, std::size_t height, std::size_t y,
                                         const std::uint8_t* const* channels, bool mirrored) const noexcept {
  if (type_ == dtype::u8 && layout_ == image_layout::chw && !mirrored) {
    for (std::size_t c = 0; c < 3; ++c) {
      std::memcpy(static_cast<std::uint8_t*>(tensor) + (c * height + y) * width, channels[c], width);
    }
    return;
  }
  // What is left at the end of the tensor's row is looked up.
  const std::size_t first = vectors_ ? store_vectors(tensor, width, height, y, channels, mirrored) : 0;
  const auto store = [&](auto* to, auto value) {
    store_pixels(to, layout_, width, height, y, first, channels, mirrored, value);
  };
  if (type_ == dtype::u8) {
    store(static_cast<std::uint8_t*>(tensor), [](std::size_t, std::uint8_t v) { return v; });
  } else if (type_ == dtype::f32) {
    store(static_cast<float*>(tensor), [t = wide_.data()](std::size_t c, std::uint8_t v) { return t[c * 256 + v]; });
  } else {
    store(static_cast<std::uint16_t*>(tensor),
          [t = narrow_.data()](std::size_t c, std::uint8_t v) { return t[c * 256 + v]; });
  }
}

#if defined(__x86_64__)

MILLRACE_INLINE std::size_t pixel_writer::store_vectors(void* tensor, std::size_t width, std::size_t height,
                                                        std::size_t y, const std::uint8_t* const* channels,
                                                        bool mirrored) const noexcept {
  if (type_ == dtype::u8) {
    return store_bytes_in_turn(static_cast<std::uint8_t*>(tensor) + y * width * 3, channels, width, mirrored);
  }
  auto* const values = static_cast<std::uint16_t*>(tensor);
  if (layout_ == image_layout::hwc) {
    const auto store = type_ == dtype::f16 ? &store_values_in_turn<dtype::f16> : &store_values_in_turn<dtype::bf16>;
    return store(values + y * width * 3, channels, width, mirrored, scale_, offset_);
  }
  const auto store = type_ == dtype::f16 ? &store_values<dtype::f16> : &store_values<dtype::bf16>;
  std::size_t stored = 0;
  for (std::size_t c = 0; c < 3; ++c) {
    stored = store(values + (c * height + y) * width, channels[c], width, mirrored, scale_[c], offset_[c]);
  }
  return stored;
}

MILLRACE_INLINE bool pixel_writer::is_linear() const {
  std::uint8_t row[256];
  for (std::size_t i = 0; i < 256; ++i) row[i] = static_cast<std::uint8_t>(i);
  std::vector<std::uint16_t> got(narrow_.size());
  const auto store = type_ == dtype::f16 ? &store_values<dtype::f16> : &store_values<dtype::bf16>;
  for (std::size_t c = 0; c < 3; ++c) store(got.data() + c * 256, row, 256, false, scale_[c], offset_[c]);
  return got == narrow_;
}

#else

MILLRACE_INLINE std::size_t pixel_writer::store_vectors(void*, std::size_t, std::size_t, std::size_t,
                                                        const std::uint8_t* const*, bool) const noexcept {
  return 0;
}
MILLRACE_INLINE bool pixel_writer::is_linear() const { return false; }

#endif

}  // namespace millrace::detail
