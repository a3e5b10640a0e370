// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/image_source.hpp>
#include <millrace/decode/image.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/memory/pixel_pool.hpp>

#if defined(MILLRACE_WITH_JPEG)
#include <millrace/decode/detail/jpeg_source.hpp>
#endif
#if defined(MILLRACE_WITH_PNG)
#include <millrace/decode/detail/png_source.hpp>
#endif
#if defined(MILLRACE_WITH_WEBP)
#include <millrace/decode/detail/webp_source.hpp>
#endif

#if defined(MILLRACE_SEPARATE_COMPILATION)

namespace millrace::inline MILLRACE_ABI::detail {

source_makers linked_formats::makers() noexcept { return formats_of<linked_jpeg, linked_png, linked_webp>::makers(); }

}  // namespace millrace::detail

#endif

#if defined(__x86_64__)

/// Rows of bytes as rows of a tensor, eight or sixteen pixels at a time, by AVX2 and F16C. In the compiler's vectors:
/// its headers of intrinsics cost a file that includes them 0.3 s.

#define MILLRACE_AVX2 __attribute__((target("avx2,f16c")))

namespace millrace::inline MILLRACE_ABI::detail {

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

/// Eight values rounded to 16 bits.
template <dtype Type>
MILLRACE_AVX2 inline halves8 eight_halves(floats8 value) noexcept {
  if constexpr (Type == dtype::f16) {
    return reinterpret_cast<halves8>(__builtin_ia32_vcvtps2ph256(value, 0));  // 0: to nearest, ties to even
  } else {
    const auto bits = reinterpret_cast<unsigned8>(value);
    return __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, halves8);
  }
}

/// scale * value + offset of eight pixels, rounded to 16 bits.
template <dtype Type>
MILLRACE_AVX2 inline halves8 eight_values(std::uint64_t pixels, float scale, float offset) noexcept {
  const bytes16 narrow = reinterpret_cast<bytes16>(words2{pixels, 0});
  // Step by step: at once, g++ 12 would convert each pixel by itself.
  const auto wider = reinterpret_cast<shorts8>(
      __builtin_shufflevector(narrow, bytes16{}, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  return eight_halves<Type>(__builtin_convertvector(__builtin_convertvector(wider, ints8), floats8) * scale + offset);
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

/// The first n / 8 * 8 values rounded to 16 bits.
template <dtype Type>
MILLRACE_AVX2 inline void store_rounded(std::uint16_t* to, const float* values, std::size_t n) noexcept {
  for (std::size_t i = 0; i + 8 <= n; i += 8) {
    floats8 eight;
    std::memcpy(&eight, values + i, sizeof eight);
    const halves8 rounded = eight_halves<Type>(eight);
    std::memcpy(to + i, &rounded, sizeof rounded);
  }
}
/// The same, if the processor has the vectors; returns how many.
template <dtype Type>
std::size_t store_halves(std::uint16_t* to, const float* values, std::size_t n) noexcept {
  static const bool vectors = has_avx2();
  if (!vectors) return 0;
  store_rounded<Type>(to, values, n);
  return n / 8 * 8;
}

}  // namespace millrace::detail

#undef MILLRACE_AVX2

#else

namespace millrace::inline MILLRACE_ABI::detail {

template <dtype Type>
std::size_t store_halves(std::uint16_t*, const float*, std::size_t) noexcept {
  return 0;
}

}  // namespace millrace::detail

#endif

namespace millrace::inline MILLRACE_ABI::detail {

/// How the pixels of one side become those of the result: each is a weighted sum of so many neighbours.
class resize_weights {
 public:
  static constexpr int bits = 14;  // of a weight of 1: bicubic ones go up to 1.3

  /// Pixels `from` to `to` of `size` become `count`, as in Pillow: beside the image there are none, and the others
  /// weigh the more. Takes a multiple of `multiple` neighbours, if the image has so many.
  void prepare(int size, double from, double to, int count, image_filter filter, int multiple) {
    const double scale = (to - from) / count;
    const double wide = std::max(1.0, scale);
    const double reach = radius_of(filter) * wide;
    const int most = filter == image_filter::nearest ? 1 : static_cast<int>(std::min(2 * reach, 65535.0)) + 1;
    taps = std::min(size, (most + multiple - 1) / multiple * multiple);
    first.resize(static_cast<std::size_t>(count));
    weights.assign(static_cast<std::size_t>(count) * static_cast<std::size_t>(taps), 0);
    std::vector<double> exact(static_cast<std::size_t>(std::min(most, taps)));
    for (int i = 0; i < count; ++i) {
      const double centre = from + (i + 0.5) * scale;
      int begin = static_cast<int>(std::max(0.0, centre - reach + 0.5));
      int end = std::min(size, static_cast<int>(centre + reach + 0.5));
      if (filter == image_filter::nearest) begin = std::min(size - 1, static_cast<int>(centre));
      end = std::min(std::max(end, begin + 1), begin + static_cast<int>(exact.size()));
      double sum = 0;
      for (int k = begin; k < end; ++k) {
        sum += exact[static_cast<std::size_t>(k - begin)] = weight(filter, (k + 0.5 - centre) / wide);
      }
      // The sum up to each is rounded: so they are 1 together.
      first[static_cast<std::size_t>(i)] = std::min(begin, size - taps);
      std::int16_t* const to_weight =
          weights.data() + static_cast<std::ptrdiff_t>(i) * taps + (begin - first[static_cast<std::size_t>(i)]);
      constexpr int above_zero = 1 << 16;
      double until = above_zero + 0.5;
      int given = above_zero;
      for (int k = 0; k < end - begin; ++k) {
        until += exact[static_cast<std::size_t>(k)] / sum * (1 << bits);
        to_weight[k] = static_cast<std::int16_t>(static_cast<int>(until) - given);
        given = static_cast<int>(until);
      }
    }
  }

  static double radius_of(image_filter filter) noexcept {
    return filter == image_filter::lanczos ? 3 : filter == image_filter::bicubic ? 2 : 1;
  }

  int taps = 0;
  std::vector<int> first;             // of the neighbours
  std::vector<std::int16_t> weights;  // taps for each

 private:
  static double weight(image_filter filter, double x) noexcept {
    x = std::abs(x);
    switch (filter) {
      case image_filter::nearest:
        return 1;
      case image_filter::bilinear:
        return std::max(0.0, 1 - x);
      case image_filter::bicubic:  // Keys' with a = -0.5
        return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
      case image_filter::lanczos: {
        constexpr double pi = 3.14159265358979323846;
        return x == 0 ? 1 : x < 3 ? 3 * std::sin(pi * x) * std::sin(pi * x / 3) / (pi * x * pi * x) : 0;
      }
    }
    return 0;
  }
};

/// Rows become as wide as the result as they come, 16 bits a value with `fraction` bits below the point; of so many as
/// the filter needs a row of the result is made.
struct resizer::state {
  static constexpr int fraction = 6;
  static constexpr int across_bits = resize_weights::bits - fraction;
  static constexpr int down_bits = resize_weights::bits + fraction;
  static constexpr std::size_t block = 8;  // pixels that the vectors take at once

  explicit state(bool without_vectors) {
#if defined(__x86_64__)
    may_use_vectors = !without_vectors && has_avx2();
#else
    static_cast<void>(without_vectors);
#endif
  }

  std::int16_t* held(int y) noexcept { return rows.data() + static_cast<std::size_t>(y % down.taps) * pitch * 4; }

  void across(const std::uint8_t* row, std::int16_t* to) const noexcept {
    using bytes4 = std::uint8_t __attribute__((vector_size(4)));
    using shorts4 = std::int16_t __attribute__((vector_size(8)));
    using ints4 = std::int32_t __attribute__((vector_size(16)));  // the channels of a pixel
    const auto taps = static_cast<std::size_t>(horizontal.taps);
    for (std::size_t x = 0; x < horizontal.first.size(); ++x) {
      const std::uint8_t* const from = row + static_cast<std::size_t>(horizontal.first[x]) * 4;
      const std::int16_t* const w = horizontal.weights.data() + x * taps;
      ints4 sum = ints4{} + (1 << (across_bits - 1));
      for (std::size_t k = 0; k < taps; ++k) {
        bytes4 pixel;
        std::memcpy(&pixel, from + k * 4, sizeof pixel);
        sum += __builtin_convertvector(pixel, ints4) * std::int32_t(w[k]);
      }
      constexpr std::int32_t least = -32768, most = 32767;
      sum >>= across_bits;
      sum = sum < least ? ints4{} + least : sum;
      sum = sum > most ? ints4{} + most : sum;
      const auto narrow = __builtin_convertvector(sum, shorts4);
      std::memcpy(to + x * 4, &narrow, sizeof narrow);
    }
  }

  void downwards(std::size_t y) noexcept {
    const auto taps = static_cast<std::size_t>(down.taps);
    const std::size_t width = horizontal.first.size();
    totals.assign(width * 4, 1 << (down_bits - 1));
    for (std::size_t k = 0; k < taps; ++k) {
      const std::int16_t* const from = needed[k];
      const std::int16_t w = down.weights[y * taps + k];
      for (std::size_t i = 0; i < width * 4; ++i) totals[i] += w * from[i];
    }
    for (std::size_t c = 0; c < 3; ++c) {
      std::uint8_t* const to = plane(c) + y * pitch;
      for (std::size_t x = 0; x < width; ++x) {
        to[x] = static_cast<std::uint8_t>(std::clamp(totals[x * 4 + c] >> down_bits, 0, 255));
      }
    }
  }

#if defined(__x86_64__)
  void spread_weights();
  void across_by_vectors(const std::uint8_t* row, std::int16_t* to) const noexcept;
  void downwards_by_vectors(std::size_t y) noexcept;
#endif

  std::uint8_t* plane(std::size_t channel) noexcept {
    return planes.data() + channel * pitch * static_cast<std::size_t>(geometry.height);
  }

  bool may_use_vectors = false;
  bool vectors = false;  // across: not if the image has fewer pixels than they take
  bool prepared = false;
  resize_geometry geometry;
  resize_weights horizontal, down;
  std::vector<std::int16_t> spread;         // the horizontal weights, as the vectors take them
  std::vector<std::int16_t> rows;           // the last ones, four values a pixel
  std::vector<const std::int16_t*> needed;  // of them, for a row of the result
  std::vector<std::int32_t> totals;         // of a row, without vectors
  std::vector<std::uint8_t> planes;         // one after the other
  std::size_t pitch = 0;                    // pixels of a row
  int come = 0, made = 0;                   // rows
};

MILLRACE_INLINE resizer::resizer(bool plain) : state_(std::make_unique<state>(plain)) {}
MILLRACE_INLINE resizer::resizer(resizer&&) noexcept = default;
MILLRACE_INLINE resizer& resizer::operator=(resizer&&) noexcept = default;
MILLRACE_INLINE resizer::~resizer() = default;

MILLRACE_INLINE void resizer::begin(const resize_geometry& g) {
  state& s = *state_;
  s.come = s.made = 0;
  if (s.prepared && g == s.geometry) return;
  s.prepared = false;
  s.geometry = g;
  s.horizontal.prepare(g.columns, g.box.left, g.box.right, g.width, g.filter, 4);
  s.down.prepare(g.rows, g.box.top, g.box.bottom, g.height, g.filter, 2);
  s.pitch = (static_cast<std::size_t>(g.width) + state::block - 1) / state::block * state::block;
  s.rows.resize(s.pitch * 4 * static_cast<std::size_t>(s.down.taps));
  s.needed.resize(static_cast<std::size_t>(s.down.taps));
  s.totals.reserve(s.horizontal.first.size() * 4);  // downwards() must not throw
  s.planes.resize(s.pitch * static_cast<std::size_t>(g.height) * 3);
  s.vectors = s.may_use_vectors && s.horizontal.taps % 4 == 0;
#if defined(__x86_64__)
  if (s.vectors) s.spread_weights();
#endif
  s.prepared = true;
}

MILLRACE_INLINE void resizer::put_row(const std::uint8_t* row) noexcept {
  state& s = *state_;
  const int y = s.come++;
#if defined(__x86_64__)
  if (s.vectors) {
    s.across_by_vectors(row, s.held(y));
  } else
#endif
    s.across(row, s.held(y));
  for (; s.made < s.geometry.height; ++s.made) {
    const auto at = static_cast<std::size_t>(s.made);
    const int first = s.down.first[at];
    if (first + s.down.taps > s.come) return;
    for (int k = 0; k < s.down.taps; ++k) s.needed[static_cast<std::size_t>(k)] = s.held(first + k);
#if defined(__x86_64__)
    if (s.may_use_vectors) {
      s.downwards_by_vectors(at);
      continue;
    }
#endif
    s.downwards(at);
  }
}

MILLRACE_INLINE const std::uint8_t* resizer::row(int channel, std::size_t y) const noexcept {
  return state_->plane(static_cast<std::size_t>(channel)) + state_->pitch * y;
}

#if defined(__x86_64__)

#define MILLRACE_AVX2 __attribute__((target("avx2")))

using chars16 = char __attribute__((vector_size(16)));
using chars32 = char __attribute__((vector_size(32)));
using shorts16 = short __attribute__((vector_size(32)));
using words4 = long long __attribute__((vector_size(32)));

template <class Vector>
MILLRACE_AVX2 inline Vector loaded(const void* from) noexcept {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

/// Sixteen bytes from each of two places.
MILLRACE_AVX2 inline chars32 loaded_from_two(const void* a, const void* b) noexcept {
  return __builtin_shufflevector(loaded<chars16>(a), loaded<chars16>(b), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
                                 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
}

/// Spreads the weights for across_by_vectors(), of two neighbours after the other: for each four pixels of the result,
/// number 0 and 2, then 1 and 3, and of each the weights of two neighbours, once for every channel.
MILLRACE_INLINE void resizer::state::spread_weights() {
  const auto taps = static_cast<std::size_t>(horizontal.taps);
  const std::size_t width = horizontal.first.size();
  spread.resize(pitch * taps * 4);
  std::int16_t* out = spread.data();
  for (std::size_t x = 0; x < pitch; x += 4) {
    for (std::size_t k = 0; k < taps; k += 4) {
      for (std::size_t part = 0; part < 8; ++part) {
        const std::size_t pixel = x + (part & 1) * 2 + part / 4;
        std::int16_t pair[2] = {};
        if (pixel < width) std::memcpy(pair, &horizontal.weights[pixel * taps + k + (part & 2)], sizeof pair);
        for (int c = 0; c < 4; ++c, out += 2) std::memcpy(out, pair, sizeof pair);
      }
    }
  }
}

MILLRACE_AVX2 MILLRACE_INLINE void resizer::state::across_by_vectors(const std::uint8_t* row,
                                                                     std::int16_t* out) const noexcept {
  constexpr char none = -1;
  // Two neighbours of each channel, as 16 bits each.
  constexpr chars32 low = {0, none, 4, none, 1, none, 5, none, 2, none, 6, none, 3, none, 7, none,
                           0, none, 4, none, 1, none, 5, none, 2, none, 6, none, 3, none, 7, none};
  constexpr chars32 high = {8, none, 12, none, 9, none, 13, none, 10, none, 14, none, 11, none, 15, none,
                            8, none, 12, none, 9, none, 13, none, 10, none, 14, none, 11, none, 15, none};
  const auto taps = static_cast<std::size_t>(horizontal.taps);
  const std::size_t last = horizontal.first.size() - 1;
  const std::int16_t* w = spread.data();
  for (std::size_t x = 0; x < pitch; x += 4) {
    const std::uint8_t* from[4];
    for (std::size_t i = 0; i < 4; ++i) {
      from[i] = row + static_cast<std::size_t>(horizontal.first[std::min(x + i, last)]) * 4;
    }
    ints8 even = ints8{} + (1 << (across_bits - 1));
    ints8 odd = even;
    for (std::size_t k = 0; k < taps; k += 4, w += 64) {
      const chars32 a = loaded_from_two(from[0] + k * 4, from[2] + k * 4);
      const chars32 b = loaded_from_two(from[1] + k * 4, from[3] + k * 4);
      const auto weighed = [w](chars32 pixels, const chars32& which, std::size_t n) MILLRACE_AVX2 {
        return reinterpret_cast<ints8>(__builtin_ia32_pmaddwd256(
            reinterpret_cast<shorts16>(__builtin_ia32_pshufb256(pixels, which)), loaded<shorts16>(w + n * 16)));
      };
      even += weighed(a, low, 0) + weighed(a, high, 1);
      odd += weighed(b, low, 2) + weighed(b, high, 3);
    }
    const auto packed = __builtin_ia32_packssdw256(even >> across_bits, odd >> across_bits);
    std::memcpy(out + x * 4, &packed, sizeof packed);
  }
}

MILLRACE_AVX2 MILLRACE_INLINE void resizer::state::downwards_by_vectors(std::size_t y) noexcept {
  constexpr chars32 by_channel = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
                                  0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const auto taps = static_cast<std::size_t>(down.taps);
  const std::int16_t* const w = down.weights.data() + y * taps;
  for (std::size_t x = 0; x < pitch; x += block) {
    ints8 sums[4];
    for (ints8& s : sums) s = ints8{} + (1 << (down_bits - 1));
    for (std::size_t k = 0; k < taps; k += 2) {
      const bool two = k + 1 < taps;  // with no second row the first one weighs nothing the second time
      const std::int16_t* const a = needed[k] + x * 4;
      const std::int16_t* const b = needed[two ? k + 1 : k] + x * 4;
      const short of_a = w[k];
      const short of_b = two ? w[k + 1] : short(0);
      const shorts16 weights = {of_a, of_b, of_a, of_b, of_a, of_b, of_a, of_b,
                                of_a, of_b, of_a, of_b, of_a, of_b, of_a, of_b};
      for (std::size_t half = 0; half < 2; ++half) {
        const auto p = loaded<shorts16>(a + half * 16);
        const auto q = loaded<shorts16>(b + half * 16);
        const shorts16 low = __builtin_shufflevector(p, q, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
        const shorts16 high = __builtin_shufflevector(p, q, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31);
        sums[half * 2] += reinterpret_cast<ints8>(__builtin_ia32_pmaddwd256(low, weights));
        sums[half * 2 + 1] += reinterpret_cast<ints8>(__builtin_ia32_pmaddwd256(high, weights));
      }
    }
    const auto packed =
        __builtin_ia32_packuswb256(__builtin_ia32_packssdw256(sums[0] >> down_bits, sums[1] >> down_bits),
                                   __builtin_ia32_packssdw256(sums[2] >> down_bits, sums[3] >> down_bits));
    const auto pixels = reinterpret_cast<words4>(packed);
    const words4 in_order = __builtin_shufflevector(pixels, pixels, 0, 2, 1, 3);
    const auto channels =
        reinterpret_cast<ints8>(__builtin_ia32_pshufb256(reinterpret_cast<chars32>(in_order), by_channel));
    const ints8 by_plane = __builtin_shufflevector(channels, channels, 0, 4, 1, 5, 2, 6, 3, 7);
    std::uint8_t bytes[sizeof by_plane];
    std::memcpy(bytes, &by_plane, sizeof by_plane);
    for (std::size_t c = 0; c < 3; ++c) std::memcpy(plane(c) + y * pitch + x, bytes + c * block, block);
  }
}

#undef MILLRACE_AVX2

#endif

/// Pixels of a row, from the first one that is given on, of values `value(c, v)` of the channels' rows.
template <class T, class Value>
void store_pixels(T* tensor, std::size_t count, image_layout layout, std::size_t width, std::size_t height,
                  std::size_t y, std::size_t first, const std::uint8_t* const* channels, bool mirrored,
                  Value value) noexcept {
  for (std::size_t c = 0; c < count; ++c) {
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

MILLRACE_INLINE pixel_writer::pixel_writer(const image_options& o)
    : count_(o.channels == image_channels::rgb ? 3 : 1),
      layout_(count_ == 1 ? image_layout::chw : o.layout),  // which are the same
      type_(o.type) {
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
    for (std::size_t c = 0; c < count_; ++c) {
      std::memcpy(static_cast<std::uint8_t*>(tensor) + (c * height + y) * width, channels[c], width);
    }
    return;
  }
  // The rest of the tensor's row is looked up.
  const std::size_t first = vectors_ ? store_vectors(tensor, width, height, y, channels, mirrored) : 0;
  const auto store = [&](auto* to, auto value) {
    store_pixels(to, count_, layout_, width, height, y, first, channels, mirrored, value);
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
  for (std::size_t c = 0; c < count_; ++c) {
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

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// A box of the upright image as one of the stored image.
inline image_box stored(const image_box& b, const orientation& o, int width, int height) noexcept {
  image_box s = o.transposed ? image_box(b.top, b.left, b.bottom, b.right) : b;
  if (o.mirrored_x) s = image_box(width - s.right, s.top, width - s.left, s.bottom);
  if (o.mirrored_y) s = image_box(s.left, height - s.bottom, s.right, height - s.top);
  return s;
}

/// How many pixels to each side of the range from `from` to `to` the filter reaches that makes `size` pixels of it.
inline int reach_of(image_filter filter, double from, double to, int size) noexcept {
  if (filter == image_filter::nearest) return 1;
  return static_cast<int>(std::ceil(resize_weights::radius_of(filter) * std::max(1.0, (to - from) / size)));
}

// A JPEG's own reduction takes means of squares, a poor filter: at least so much is left to the good one.
inline constexpr double left_to_filter = 1.5;
inline constexpr int largest_tensor = 65535;

}  // namespace detail

struct image_decoder::workspace {
  /// Throws decode_error for data in none of the formats that the program is linked with.
  detail::image_source& source_for(image_format format, const detail::source_makers& makers) {
    switch (format) {
      case image_format::jpeg:
        return made(sources[0], makers.jpeg,
                    "a JPEG, and the program is built without millrace::jpeg (Debian: libjpeg-dev)");
      case image_format::png:
        return made(sources[1], makers.png,
                    "a PNG, and the program is built without millrace::png (Debian: libspng-dev)");
      case image_format::webp:
        return made(sources[2], makers.webp,
                    "a WebP, and the program is built without millrace::webp (Debian: libwebp-dev)");
      case image_format::unknown:
        break;
    }
    throw decode_error("not an image: it begins as no JPEG, PNG or WebP does");
  }
  static detail::image_source& made(std::unique_ptr<detail::image_source>& source, detail::source_makers::maker make,
                                    const char* missing) {
    if (make == nullptr) throw decode_error(missing);
    if (source == nullptr) source = make();
    return *source;
  }

  /// Memory for a row of so many pixels, four bytes each, which a source writes. Aligned to no more than 8 bytes:
  /// libjpeg-turbo writes rows that are aligned to its vectors past the caches.
  std::uint8_t* line(int pixels) {
    constexpr std::size_t vector_bytes = 32;
    line_.resize(static_cast<std::size_t>(pixels) * 4 + 2 * vector_bytes);
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(line_.data()) % vector_bytes;
    return line_.data() + (vector_bytes - beyond) + 8;
  }

  std::array<std::unique_ptr<detail::image_source>, 3> sources;  // made when first needed
  detail::resizer resizer;
  std::vector<std::uint8_t> turned;
  std::unique_ptr<workspace> next;

 private:
  std::vector<std::uint8_t> line_;
};

struct image_decoder::shared {
  shared(const image_options& o, const detail::source_makers& f) : writer(o), formats(f) {}
  const detail::pixel_writer writer;
  const detail::source_makers formats;
  pixel_pool pixels;
  std::mutex mutex;
  std::unique_ptr<workspace> idle;
  std::atomic<std::uint64_t> odd{0};
};

MILLRACE_INLINE std::uint64_t image_decoder::odd_images() const noexcept {
  return shared_->odd.load(std::memory_order_relaxed);
}

MILLRACE_INLINE image_decoder::image_decoder(const image_options& options, const detail::source_makers& formats)
    : options_(options), shared_(std::make_shared<shared>(options, formats)) {
  if (options.height < 1 || options.width < 1 || options.height > detail::largest_tensor ||
      options.width > detail::largest_tensor) {
    throw configuration_error("an image's .height and .width are numbers from 1 to 65535");
  }
  if (!(options.flip >= 0 && options.flip <= 1)) throw configuration_error("an image's .flip is a probability");
  if (options.classes < 0 || options.classes > 256) {
    throw configuration_error(".classes of masks is a number from 1 to 256, or 0");
  }
  if (options.channels == image_channels::class_numbers) {
    if (options.type != dtype::u8) {
      throw configuration_error("class numbers become u8, not " + std::string(name_of(options.type)));
    }
    options_.filter = image_filter::nearest;
  }
}

MILLRACE_INLINE shape image_decoder::dims() const {
  if (options_.channels == image_channels::class_numbers) return shape{options_.height, options_.width};
  const int channels = options_.channels == image_channels::grey ? 1 : 3;
  if (options_.layout == image_layout::chw) return shape{channels, options_.height, options_.width};
  return shape{options_.height, options_.width, channels};
}

MILLRACE_INLINE image_geometry image_decoder::into(const tensor_view& place, const bytes& data, draw_part draw,
                                                   void* from, const where& at) const {
  if (place.type() != options_.type || place.dims() != dims()) {
    throw configuration_error("images become " + std::string(name_of(options_.type)) + " " + dims().text() +
                              ", and the place for one is " + name_of(place.type()) + " " + place.dims().text());
  }
  image_geometry g;
  with_source(data, at,
              [&](detail::image_source& source, workspace& w) { g = convert(source, w, place.data(), draw, from); });
  return g;
}

MILLRACE_INLINE void image_decoder::into(const tensor_view& place, const bytes& data, const image_geometry& g,
                                         const where& at) const {
  const image_box& b = g.taken;
  if (g.out_width != options_.width || g.out_height != options_.height) {
    throw configuration_error("images become " + std::to_string(options_.width) + "x" +
                              std::to_string(options_.height) + " pixels, and the geometry's " +
                              std::to_string(g.out_width) + "x" + std::to_string(g.out_height));
  }
  if (!(b.left >= 0 && b.left < b.right && b.right <= g.width && b.top >= 0 && b.top < b.bottom &&
        b.bottom <= g.height)) {
    throw configuration_error("what is taken of an image by its geometry is no part of it");
  }
  const auto same = [](const image_options&, int width, int height, void* from) {
    const auto& other = *static_cast<const image_geometry*>(from);
    if (width != other.width || height != other.height) {
      throw decode_error("it has " + std::to_string(width) + "x" + std::to_string(height) +
                         " pixels, and the image whose geometry it gets has " + std::to_string(other.width) + "x" +
                         std::to_string(other.height));
    }
    return other;
  };
  image_geometry copy = g;
  into(place, data, +same, &copy, at);
}

MILLRACE_INLINE image image_decoder::whole(const bytes& data, const where& at) const {
  image out;
  with_source(data, at, [&](detail::image_source& source, workspace& w) { out = copy(source, w); });
  return out;
}

MILLRACE_INLINE undecoded_image image_decoder::undecoded(const bytes& data, const where& at) const {
  /// Decodes an image that a device leaves to the host.
  class on_host final : public detail::host_image_decoder {
   public:
    explicit on_host(const image_decoder& by) : by_(by) {}
    pixel_buffer pixels(const bytes& from, const where& place) const override { return by_.whole(from, place).pixels; }

   private:
    image_decoder by_;
  };
  undecoded_image out;
  with_source(
      data, at,
      [&](detail::image_source& source, workspace&) {
        const detail::orientation turn(options_.upright ? source.orientation : 1);
        out.height = turn.transposed ? source.width : source.height;
        out.width = turn.transposed ? source.height : source.width;
        out.plain_jpeg = source.plain_jpeg && (!options_.upright || source.orientation == 1);
      },
      false);
  out.data = data;
  out.on_host = std::make_shared<on_host>(*this);
  return out;
}

template <class Use>
void image_decoder::with_source(const bytes& data, const where& at, Use&& use, bool to_the_end) const {
  std::unique_ptr<workspace> w = take();
  detail::image_source* source = nullptr;
  try {
    const image_format format = image_format_of(data.view());
    const bool known = format != image_format::unknown;
    const std::string_view other = known ? std::string_view() : other_image_format(data.view());
    if (!other.empty()) throw decode_error("the image is " + std::string(other) + ": JPEG, PNG and WebP are decoded");
    source = &w->source_for(format, shared_->formats);
    source->open(data, options_.tolerate_corruption);
    if (static_cast<std::uint64_t>(source->width) * static_cast<std::uint64_t>(source->height) > options_.max_pixels) {
      throw decode_error("the image has " + std::to_string(source->width) + "x" + std::to_string(source->height) +
                         " pixels, more than are allowed");
    }
    use(*source, *w);
    if (to_the_end) {
      source->finish();
      if (source->oddity != nullptr) {
        shared_->odd.fetch_add(1, std::memory_order_relaxed);
        detail::say_oddity(*source, at);
      }
    }
  } catch (error& e) {
    if (source != nullptr) source->close();
    e.add_place(at);
    give_back(std::move(w));
    throw;
  } catch (...) {
    if (source != nullptr) source->close();
    throw;
  }
  source->close();
  give_back(std::move(w));
}

MILLRACE_INLINE void image_decoder::check_classes(const std::uint8_t* row) const {
  constexpr int no_class = 255;
  for (int x = 0; x < options_.width; ++x) {
    if (row[x] >= options_.classes && row[x] != no_class) {
      throw decode_error("a pixel has class number " + std::to_string(row[x]) + ", and there are " +
                         std::to_string(options_.classes) + " classes");
    }
  }
}

MILLRACE_INLINE image_geometry image_decoder::convert(detail::image_source& source, workspace& w, void* tensor,
                                                      draw_part draw, void* from) const {
  const detail::orientation turn(options_.upright ? source.orientation : 1);
  const int upright_width = turn.transposed ? source.height : source.width;
  const int upright_height = turn.transposed ? source.width : source.height;
  source.numbers = options_.channels == image_channels::class_numbers;
  if (source.numbers && source.no_numbers() != nullptr) {
    throw decode_error("class numbers cannot be read: " + std::string(source.no_numbers()));
  }
  image_geometry taken = draw(options_, upright_width, upright_height, from);
  taken.width = upright_width;
  taken.height = upright_height;
  taken.out_width = options_.width;
  taken.out_height = options_.height;
  const image_box box = detail::stored(taken.taken, turn, source.width, source.height);
  const int columns = turn.transposed ? options_.height : options_.width;  // of the result, before it is turned
  const int rows = turn.transposed ? options_.width : options_.height;

  int scale = 1;
  if (options_.reduced_jpegs && source.reduces()) {
    const double most = std::min(box.width() / columns, box.height() / rows) / detail::left_to_filter;
    while (scale < 8 && scale * 2 <= most) scale *= 2;
  }
  const int width = (source.width + scale - 1) / scale;
  const int height = (source.height + scale - 1) / scale;
  // The part that is read of the image that the source makes.
  const image_box part_of(box.left / scale, box.top / scale, box.right / scale, box.bottom / scale);
  const bool out = options_.crop.reaches_out();
  const int beside_x = out ? detail::reach_of(options_.filter, part_of.left, part_of.right, columns) : 0;
  const int beside_y = out ? detail::reach_of(options_.filter, part_of.top, part_of.bottom, rows) : 0;
  detail::pixel_range wanted;
  wanted.left = std::max(0, static_cast<int>(std::floor(part_of.left)) - beside_x);
  wanted.right = std::min(width, static_cast<int>(std::ceil(part_of.right)) + beside_x);
  wanted.top = std::max(0, static_cast<int>(std::floor(part_of.top)) - beside_y);
  wanted.bottom = std::min(height, static_cast<int>(std::ceil(part_of.bottom)) + beside_y);
  int first = 0;
  int pixels = 0;
  source.begin(scale, wanted, first, pixels);

  detail::resizer& r = w.resizer;
  detail::resize_geometry g;
  g.columns = wanted.right - wanted.left;
  g.rows = wanted.bottom - wanted.top;
  g.box = image_box(part_of.left - wanted.left, part_of.top - wanted.top, part_of.right - wanted.left,
                    part_of.bottom - wanted.top);
  g.width = columns;
  g.height = rows;
  g.filter = options_.filter;
  r.begin(g);
  std::uint8_t* const line = w.line(pixels);
  for (int y = 0; y < g.rows; ++y) {
    source.read_row(line);
    r.put_row(line + static_cast<std::size_t>(wanted.left - first) * 4);
  }

  const auto out_width = static_cast<std::size_t>(options_.width);
  const auto out_height = static_cast<std::size_t>(options_.height);
  const bool grey = options_.channels == image_channels::grey;
  if (turn.transposed || grey) w.turned.resize(out_width * 4);
  for (std::size_t y = 0; y < out_height; ++y) {
    const std::uint8_t* channels[3];
    for (int c = 0; c < 3; ++c) {
      if (!turn.transposed) {
        channels[c] = r.row(c, turn.mirrored_y ? out_height - 1 - y : y);
        continue;
      }
      // A row of the upright image is a column of the stored one.
      std::uint8_t* const column = w.turned.data() + static_cast<std::size_t>(c) * out_width;
      channels[c] = column;
      const std::size_t x = turn.mirrored_x ? out_height - 1 - y : y;
      for (std::size_t i = 0; i < out_width; ++i) column[i] = r.row(c, turn.mirrored_y ? out_width - 1 - i : i)[x];
    }
    if (grey) {
      std::uint8_t* const luma = w.turned.data() + 3 * out_width;
      for (std::size_t x = 0; x < out_width; ++x) {
        luma[x] = static_cast<std::uint8_t>(
            (channels[0][x] * 19595u + channels[1][x] * 38470u + channels[2][x] * 7471u + 0x8000u) >> 16);
      }
      channels[0] = luma;
    }
    if (source.numbers && options_.classes != 0) check_classes(channels[0]);
    shared_->writer.write(tensor, out_width, out_height, y, channels,
                          taken.flipped != (!turn.transposed && turn.mirrored_x));
  }
  return taken;
}

MILLRACE_INLINE image image_decoder::copy(detail::image_source& source, workspace& w) const {
  const detail::orientation turn(options_.upright ? source.orientation : 1);
  const auto columns = static_cast<std::size_t>(source.width);
  const auto rows = static_cast<std::size_t>(source.height);
  const std::size_t width = turn.transposed ? rows : columns;
  const std::size_t height = turn.transposed ? columns : rows;
  image out(shared_->pixels.acquire(width * height * 3), static_cast<int>(height), static_cast<int>(width), 3);
  source.numbers = false;
  source.packed = source.packs() && !turn.transposed && !turn.mirrored_x && !turn.mirrored_y;
  int first = 0;
  int pixels = 0;
  source.begin(1, {0, 0, source.width, source.height}, first, pixels);
  if (source.packed) {
    for (std::size_t y = 0; y < rows; ++y) source.read_row(out.pixels.data() + y * columns * 3);
    return out;
  }
  std::uint8_t* const line = w.line(pixels);
  for (std::size_t y = 0; y < rows; ++y) {
    source.read_row(line);
    const std::size_t to_y = turn.mirrored_y ? rows - 1 - y : y;
    for (std::size_t x = 0; x < columns; ++x) {
      const std::size_t to_x = turn.mirrored_x ? columns - 1 - x : x;
      const std::size_t to = turn.transposed ? to_x * width + to_y : to_y * width + to_x;
      std::memcpy(out.pixels.data() + to * 3, line + x * 4, 3);
    }
  }
  return out;
}

MILLRACE_INLINE std::unique_ptr<image_decoder::workspace> image_decoder::take() const {
  {
    std::lock_guard lock(shared_->mutex);
    if (shared_->idle) {
      std::unique_ptr<workspace> w = std::move(shared_->idle);
      shared_->idle = std::move(w->next);
      return w;
    }
  }
  return std::make_unique<workspace>();
}

MILLRACE_INLINE void image_decoder::give_back(std::unique_ptr<workspace> w) const noexcept {
  std::lock_guard lock(shared_->mutex);
  w->next = std::move(shared_->idle);
  shared_->idle = std::move(w);
}

}  // namespace millrace
