// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
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
    }
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
      const std::uint16_t* const t = narrow_.data();
      const auto look_up = [t](std::size_t c, std::uint8_t v) { return t[c * 256 + v]; };
      store(static_cast<std::uint16_t*>(tensor), width, height, y, row, mirrored, look_up);
    }
  }

 private:
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
  std::vector<float> wide_;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace millrace::detail
