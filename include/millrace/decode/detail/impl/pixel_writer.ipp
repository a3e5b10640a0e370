// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/decode/detail/pixel_writer.hpp>
#include <millrace/decode/image_options.hpp>

namespace millrace::detail {

#if defined(__x86_64__)

/// scale * value + offset of 8 pixels at a time as halves, by AVX2 and F16C: `pixels` is a multiple of 8. Mirrored, the
/// last pixel comes first.
__attribute__((target("avx2,f16c"))) inline void to_halves(const std::uint8_t* row, std::size_t pixels, bool mirrored,
                                                           float scale, float offset, std::uint16_t* out) noexcept {
  using bytes8 = std::uint8_t __attribute__((vector_size(8)));
  using floats8 = float __attribute__((vector_size(32)));
  for (std::size_t x = 0; x < pixels; x += 8) {
    bytes8 eight;
    std::memcpy(&eight, row + (mirrored ? pixels - 8 - x : x), sizeof eight);
    floats8 value = __builtin_convertvector(eight, floats8);
    if (mirrored) value = __builtin_shufflevector(value, value, 7, 6, 5, 4, 3, 2, 1, 0);
    const auto halves = __builtin_ia32_vcvtps2ph256(value * scale + offset, 0);  // 0: to nearest, ties to even
    std::memcpy(out + x, &halves, 16);
  }
}

#endif

/// Values `value(c, v)` of the channels' rows.
template <class T, class Value>
void store_pixels(T* tensor, image_layout layout, std::size_t width, std::size_t height, std::size_t y,
                  const std::uint8_t* const* channels, bool mirrored, Value value) noexcept {
  for (std::size_t c = 0; c < 3; ++c) {
    const std::uint8_t* from = mirrored ? channels[c] + width - 1 : channels[c];
    const std::ptrdiff_t step = mirrored ? -1 : 1;
    if (layout == image_layout::hwc) {
      T* const to = tensor + y * width * 3 + c;
      for (std::size_t x = 0; x < width; ++x, from += step) to[x * 3] = value(c, *from);
    } else {
      T* const to = tensor + (c * height + y) * width;
      for (std::size_t x = 0; x < width; ++x, from += step) to[x] = value(c, *from);
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
  linear_ = type_ == dtype::f16 && layout_ == image_layout::chw && is_linear();
}

MILLRACE_INLINE void pixel_writer::write(void* tensor, std::size_t width, std::size_t height, std::size_t y,
                                         const std::uint8_t* const* channels, bool mirrored) const noexcept {
  const auto store = [&](auto* to, auto value) {
    store_pixels(to, layout_, width, height, y, channels, mirrored, value);
  };
  if (type_ == dtype::u8) {
    store(static_cast<std::uint8_t*>(tensor), [](std::size_t, std::uint8_t v) { return v; });
  } else if (type_ == dtype::f32) {
    store(static_cast<float*>(tensor), [t = wide_.data()](std::size_t c, std::uint8_t v) { return t[c * 256 + v]; });
  } else {
    auto* const halves = static_cast<std::uint16_t*>(tensor);
#if defined(__x86_64__)
    if (linear_) {
      const std::size_t fast = width / 8 * 8;
      for (std::size_t c = 0; c < 3; ++c) {
        std::uint16_t* const to = halves + (c * height + y) * width;
        // What is left at the end of the tensor's row is looked up.
        to_halves(mirrored ? channels[c] + width - fast : channels[c], fast, mirrored, scale_[c], offset_[c], to);
        for (std::size_t x = fast; x < width; ++x) to[x] = narrow_[c * 256 + channels[c][mirrored ? width - 1 - x : x]];
      }
      return;
    }
#endif
    store(halves, [t = narrow_.data()](std::size_t c, std::uint8_t v) { return t[c * 256 + v]; });
  }
}

MILLRACE_INLINE bool pixel_writer::is_linear() const {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;  // not every compiler's __builtin_cpu_supports() knows F16C
  if (!__builtin_cpu_supports("avx2") || __get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_F16C) == 0) return false;
  std::uint8_t row[256];
  for (std::size_t i = 0; i < 256; ++i) row[i] = static_cast<std::uint8_t>(i);
  std::vector<std::uint16_t> got(narrow_.size());
  for (std::size_t i = 0; i < 3; ++i) to_halves(row, 256, false, scale_[i], offset_[i], got.data() + i * 256);
  return got == narrow_;
#else
  return false;
#endif
}

}  // namespace millrace::detail
