// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__)

#include <cpuid.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <millrace/device/dtype.hpp>

/// \file
/// Rows of bytes as rows of a tensor, eight or sixteen pixels at a time, by AVX2 and F16C. In the compiler's vectors:
/// its headers of intrinsics would cost every file that includes this one 0.3 s.

#define MILLRACE_AVX2 __attribute__((target("avx2,f16c")))

namespace millrace::detail {

using words2 = std::uint64_t __attribute__((vector_size(16)));
using bytes16 = std::uint8_t __attribute__((vector_size(16)));
using shorts8 = std::int16_t __attribute__((vector_size(16)));
using halves8 = std::uint16_t __attribute__((vector_size(16)));
using ints8 = std::int32_t __attribute__((vector_size(32)));
using unsigned8 = std::uint32_t __attribute__((vector_size(32)));
using floats8 = float __attribute__((vector_size(32)));

inline bool has_avx2() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;  // not every compiler's __builtin_cpu_supports() knows F16C
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/// Eight pixels of a row of `width`, from pixel x of what is to be stored on: mirrored, the last one is pixel 0.
inline std::uint64_t eight_pixels(const std::uint8_t* row, std::size_t width, std::size_t x, bool mirrored) noexcept {
  std::uint64_t pixels;
  std::memcpy(&pixels, mirrored ? row + width - 8 - x : row + x, sizeof pixels);
  return mirrored ? __builtin_bswap64(pixels) : pixels;
}

/// scale * value + offset of eight pixels, rounded to 16 bits.
template <dtype Type>
MILLRACE_AVX2 inline halves8 eight_values(std::uint64_t pixels, float scale, float offset) noexcept {
  const bytes16 narrow = reinterpret_cast<bytes16>(words2{pixels, 0});
  // Step by step: at once, g++ 12 would convert each pixel by itself.
  const auto wider = reinterpret_cast<shorts8>(
      __builtin_shufflevector(narrow, bytes16{}, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  const floats8 value = __builtin_convertvector(__builtin_convertvector(wider, ints8), floats8) * scale + offset;
  if constexpr (Type == dtype::f16) {
    return reinterpret_cast<halves8>(__builtin_ia32_vcvtps2ph256(value, 0));  // 0: to nearest, ties to even
  } else {
    const auto bits = reinterpret_cast<unsigned8>(value);
    return __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, halves8);
  }
}

/// Values number Part * n to (Part + 1) * n of the 3 n that come of three vectors, a value of each in turn.
template <std::size_t Part, class Vector, std::size_t... I>
MILLRACE_AVX2 inline Vector in_turn(Vector r, Vector g, Vector b, std::index_sequence<I...>) noexcept {
  constexpr std::size_t n = sizeof...(I);
  constexpr std::size_t first = Part * n;
  const Vector two = __builtin_shufflevector(r, g,
                                             static_cast<int>((first + I) % 3 == 1   ? n + (first + I) / 3
                                                              : (first + I) % 3 == 0 ? (first + I) / 3
                                                                                     : 0)...);
  return __builtin_shufflevector(two, b, static_cast<int>((first + I) % 3 == 2 ? n + (first + I) / 3 : I)...);
}

template <class T, class Vector>
MILLRACE_AVX2 inline void store_in_turn(T* to, Vector r, Vector g, Vector b) noexcept {
  constexpr std::size_t n = sizeof(Vector) / sizeof(T);
  const Vector parts[] = {in_turn<0>(r, g, b, std::make_index_sequence<n>()),
                          in_turn<1>(r, g, b, std::make_index_sequence<n>()),
                          in_turn<2>(r, g, b, std::make_index_sequence<n>())};
  std::memcpy(to, parts, sizeof parts);
}

/// The first width / 8 * 8 pixels of a channel's row; returns how many.
template <dtype Type>
MILLRACE_AVX2 inline std::size_t store_values(std::uint16_t* to, const std::uint8_t* row, std::size_t width,
                                              bool mirrored, float scale, float offset) noexcept {
  std::size_t x = 0;
  for (; x + 8 <= width; x += 8) {
    const halves8 values = eight_values<Type>(eight_pixels(row, width, x, mirrored), scale, offset);
    std::memcpy(to + x, &values, sizeof values);
  }
  return x;
}

/// The first width / 8 * 8 pixels of a row with the channels innermost; returns how many.
template <dtype Type>
MILLRACE_AVX2 inline std::size_t store_values_in_turn(std::uint16_t* to, const std::uint8_t* const* channels,
                                                      std::size_t width, bool mirrored, const float* scale,
                                                      const float* offset) noexcept {
  std::size_t x = 0;
  for (; x + 8 <= width; x += 8) {
    halves8 values[3];
    for (std::size_t c = 0; c < 3; ++c) {
      values[c] = eight_values<Type>(eight_pixels(channels[c], width, x, mirrored), scale[c], offset[c]);
    }
    store_in_turn(to + x * 3, values[0], values[1], values[2]);
  }
  return x;
}

/// The first width / 16 * 16 pixels of a row with the channels innermost, as they are; returns how many.
MILLRACE_AVX2 inline std::size_t store_bytes_in_turn(std::uint8_t* to, const std::uint8_t* const* channels,
                                                     std::size_t width, bool mirrored) noexcept {
  std::size_t x = 0;
  for (; x + 16 <= width; x += 16) {
    bytes16 pixels[3];
    for (std::size_t c = 0; c < 3; ++c) {
      pixels[c] = reinterpret_cast<bytes16>(
          words2{eight_pixels(channels[c], width, x, mirrored), eight_pixels(channels[c], width, x + 8, mirrored)});
    }
    store_in_turn(to + x * 3, pixels[0], pixels[1], pixels[2]);
  }
  return x;
}

}  // namespace millrace::detail

#undef MILLRACE_AVX2

#endif
