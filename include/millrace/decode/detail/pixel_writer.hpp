// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <millrace/decode/image_options.hpp>

namespace millrace::detail {

/// The nearest number of 16 bits, ties to even; infinite beyond the largest. IEEE 754 binary16.
constexpr std::uint16_t to_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (size >= 0x477ff000) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (size < 0x33000000) return sign;  // less than half of the smallest
  const auto exponent = static_cast<int>(size >> 23);
  // Above 2^-14 ten bits are left of the fraction, below one less for every power of two.
  const int dropped = exponent >= 113 ? 13 : 126 - exponent;
  const std::uint32_t fraction = (size & 0x7fffff) | 0x800000;
  std::uint32_t kept = fraction >> dropped;
  const std::uint32_t rest = fraction & ((1u << dropped) - 1);
  const std::uint32_t tie = 1u << (dropped - 1);
  if (rest > tie || (rest == tie && (kept & 1) != 0)) ++kept;
  if (exponent >= 113) kept += static_cast<std::uint32_t>(exponent - 113) << 10;
  return static_cast<std::uint16_t>(sign | kept);
}

/// The upper half of a float, rounded to nearest, ties to even.
constexpr std::uint16_t to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#if defined(__x86_64__)

/// scale * value + offset of 8 pixels at a time as halves, by AVX2 and F16C: `pixels` is a multiple of 8. Mirrored, the
/// last pixel comes first.
__attribute__((target("avx2,f16c"))) inline void to_f16_planes(const std::uint8_t* row, std::size_t pixels,
                                                               bool mirrored, const float* scale, const float* offset,
                                                               std::uint16_t* const* planes) noexcept {
  using ints8 = std::int32_t __attribute__((vector_size(32)));
  using floats8 = float __attribute__((vector_size(32)));
  for (std::size_t x = 0; x < pixels; x += 8) {
    ints8 eight;
    std::memcpy(&eight, row + (mirrored ? pixels - 8 - x : x) * 4, 32);
    if (mirrored) eight = __builtin_shufflevector(eight, eight, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int c = 0; c < 3; ++c) {
      const floats8 value = __builtin_convertvector((eight >> (8 * c)) & 255, floats8);
      const auto halves = __builtin_ia32_vcvtps2ph256(value * scale[c] + offset[c], 0);  // 0: to nearest, ties to even
      std::memcpy(planes[c] + x, &halves, 16);
    }
  }
}

#endif

/// Stores rows of pixels of four bytes as the tensor that was asked for: of each value there are but 256, so what
/// becomes of them is looked up.
class pixel_writer {
 public:
  explicit pixel_writer(const image_options& o) : layout_(o.layout), type_(o.type) {
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

  /// Row `y` of a tensor of `width` x `height` that begins at `tensor`; `mirrored`: its last pixel first.
  void write(void* tensor, std::size_t width, std::size_t height, std::size_t y, const std::uint8_t* row,
             bool mirrored) const noexcept {
    if (type_ == dtype::u8) {
      const auto same = [](std::size_t, std::uint8_t v) { return v; };
      store(static_cast<std::uint8_t*>(tensor), width, height, y, row, mirrored, same);
    } else if (type_ == dtype::f32) {
      const float* const t = wide_.data();
      const auto look_up = [t](std::size_t c, std::uint8_t v) { return t[c * 256 + v]; };
      store(static_cast<float*>(tensor), width, height, y, row, mirrored, look_up);
    } else {
#if defined(__x86_64__)
      if (linear_) return store_halves(static_cast<std::uint16_t*>(tensor), width, height, y, row, mirrored);
#endif
      const std::uint16_t* const t = narrow_.data();
      const auto look_up = [t](std::size_t c, std::uint8_t v) { return t[c * 256 + v]; };
      store(static_cast<std::uint16_t*>(tensor), width, height, y, row, mirrored, look_up);
    }
  }

 private:
  /// Whether the processor can do it by multiplication and addition, and whether that gives the very values of the
  /// table: it is rounded once more, so with some means it does not.
  bool is_linear() const {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;  // not every compiler's __builtin_cpu_supports() knows F16C
    if (!__builtin_cpu_supports("avx2") || __get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_F16C) == 0) return false;
    std::vector<std::uint8_t> row(256 * 4);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::uint8_t>(i / 4);
    std::vector<std::uint16_t> got(narrow_.size());
    std::uint16_t* const planes[] = {got.data(), got.data() + 256, got.data() + 512};
    to_f16_planes(row.data(), 256, false, scale_, offset_, planes);
    return got == narrow_;
#else
    return false;
#endif
  }

#if defined(__x86_64__)
  void store_halves(std::uint16_t* tensor, std::size_t width, std::size_t height, std::size_t y,
                    const std::uint8_t* row, bool mirrored) const noexcept {
    const std::size_t fast = width / 8 * 8;
    const std::size_t rest = width - fast;  // pixels at the end of the tensor's row, looked up
    std::uint16_t* const first = tensor + y * width;
    std::uint16_t* const planes[] = {first, first + width * height, first + 2 * width * height};
    to_f16_planes(mirrored ? row + rest * 4 : row, fast, mirrored, scale_, offset_, planes);
    for (std::size_t x = fast; x < width; ++x) {
      const std::uint8_t* const from = row + (mirrored ? width - 1 - x : x) * 4;
      for (std::size_t c = 0; c < 3; ++c) planes[c][x] = narrow_[c * 256 + from[c]];
    }
  }
#endif

  template <class T, class Value>
  void store(T* tensor, std::size_t width, std::size_t height, std::size_t y, const std::uint8_t* row, bool mirrored,
             Value value) const noexcept {
    const std::uint8_t* from = mirrored ? row + (width - 1) * 4 : row;
    const std::ptrdiff_t step = mirrored ? -4 : 4;
    if (layout_ == image_layout::hwc) {
      T* to = tensor + y * width * 3;
      for (std::size_t x = 0; x < width; ++x, from += step, to += 3) {
        for (std::size_t c = 0; c < 3; ++c) to[c] = value(c, from[c]);
      }
    } else {
      T* const red = tensor + y * width;
      T* const green = red + width * height;
      T* const blue = green + width * height;
      for (std::size_t x = 0; x < width; ++x, from += step) {
        red[x] = value(0, from[0]);
        green[x] = value(1, from[1]);
        blue[x] = value(2, from[2]);
      }
    }
  }

  image_layout layout_;
  dtype type_;
  float scale_[3] = {};
  float offset_[3] = {};
  bool linear_ = false;
  std::vector<float> wide_;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace millrace::detail
