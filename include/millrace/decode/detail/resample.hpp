// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <millrace/decode/image_options.hpp>

/// \file
/// Resizing of rows of pixels of four bytes, in whole numbers: first across rows, then along them, each rounded to 8
/// bits. The result is the same to the bit on every processor; which one there is decides about the speed alone.

namespace millrace::detail {

/// Along one axis, which pixels of the source make pixel i of the result: `count[i]` of them from `first[i]` on, with
/// `weights[i * stride ...]` in units of 2^-14 that add up to 1. What is behind the last weight of a pixel is 0.
class resample_axis {
 public:
  static constexpr int unit_bits = 14;
  static constexpr int chunk = 8;  // weights of one step along a row

  std::vector<int> first, count;
  std::vector<std::int16_t> weights;
  std::size_t stride = 0;
  int begin = 0, end = 0;  // of the pixels that are needed at all
  int most = 0;            // the largest count

  /// For `size` pixels of the range from `from` to `to`; pixels before `low` and from `high` on do not count.
  void set(image_filter filter, double from, double to, int low, int high, int size) {
    const double step = (to - from) / size;
    const double widening = filter == image_filter::nearest ? 1 : std::max(1.0, step);
    const double support = reach(filter) * widening;
    const auto n = static_cast<std::size_t>(size);
    first.resize(n);
    count.resize(n);
    const auto taps = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
    stride = (taps + chunk - 1) / chunk * chunk;
    weights.assign(n * stride, 0);
    exact_.resize(taps);
    begin = high;
    end = low;
    most = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double centre = from + (static_cast<double>(i) + 0.5) * step;
      if (filter == image_filter::nearest) {
        first[i] = std::clamp(static_cast<int>(std::floor(centre)), low, high - 1);
        count[i] = 1;
        weights[i * stride] = 1 << unit_bits;
      } else {
        first[i] = std::clamp(static_cast<int>(std::floor(centre - support + 0.5)), low, high - 1);
        const int last = std::clamp(static_cast<int>(std::floor(centre + support + 0.5)), first[i] + 1, high);
        count[i] = std::min(last - first[i], static_cast<int>(taps));
        weigh(filter, centre, widening, first[i], count[i], &weights[i * stride]);
      }
      begin = std::min(begin, first[i]);
      end = std::max(end, first[i] + count[i]);
      most = std::max(most, count[i]);
    }
  }

 private:
  static double reach(image_filter filter) noexcept {
    return filter == image_filter::lanczos ? 3 : filter == image_filter::bicubic ? 2 : filter == image_filter::bilinear ? 1 : 0.5;
  }
  static double value(image_filter filter, double x) noexcept {
    x = std::abs(x);
    if (filter == image_filter::bilinear) return x < 1 ? 1 - x : 0;
    if (filter == image_filter::bicubic) {
      constexpr double a = -0.5;  // R. Keys, "Cubic convolution interpolation for digital image processing", 1981
      if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
      return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
    }
    constexpr double pi = 3.14159265358979323846;
    const auto sinc = [](double t) { return t == 0 ? 1 : std::sin(t * pi) / (t * pi); };
    return x < 3 ? sinc(x) * sinc(x / 3) : 0;
  }
  /// Rounded so that they add up to 1: each is the step between two rounded sums.
  void weigh(image_filter filter, double centre, double widening, int from, int n, std::int16_t* out) {
    double total = 0;
    for (int k = 0; k < n; ++k) {
      exact_[static_cast<std::size_t>(k)] = value(filter, (from + k + 0.5 - centre) / widening);
      total += exact_[static_cast<std::size_t>(k)];
    }
    if (total == 0) {  // only at the edge of a box that is narrower than a pixel
      out[0] = 1 << unit_bits;
      return;
    }
    double sum = 0;
    double before = 0;
    for (int k = 0; k < n; ++k) {
      sum += exact_[static_cast<std::size_t>(k)];
      const double now = k + 1 == n ? double(1 << unit_bits) : std::floor(sum / total * (1 << unit_bits) + 0.5);
      out[k] = static_cast<std::int16_t>(now - before);
      before = now;
    }
  }

  std::vector<double> exact_;
};

inline std::uint8_t rounded_pixel(std::int32_t sum) noexcept {
  return static_cast<std::uint8_t>(
      std::clamp((sum + (1 << (resample_axis::unit_bits - 1))) >> resample_axis::unit_bits, 0, 255));
}

/// `bytes` of one row from `n` rows, byte by byte.
inline void mix_rows(const std::uint8_t* const* rows, const std::int16_t* weights, int n, std::uint8_t* out,
                     std::size_t bytes) noexcept {
  for (std::size_t x = 0; x < bytes; ++x) {
    std::int32_t sum = 0;
    for (int k = 0; k < n; ++k) sum += rows[k][x] * weights[k];
    out[x] = rounded_pixel(sum);
  }
}

/// Along a row that begins at pixel `begin` of the axis: out.size() pixels of the result.
inline void mix_pixels(const std::uint8_t* row, const resample_axis& axis, std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < axis.first.size(); ++i) {
    const std::uint8_t* const from = row + std::ptrdiff_t(axis.first[i] - axis.begin) * 4;
    const std::int16_t* const weights = &axis.weights[i * axis.stride];
    std::int32_t sum[4] = {};
    for (int k = 0; k < axis.count[i]; ++k) {
      for (int c = 0; c < 4; ++c) sum[c] += from[k * 4 + c] * weights[k];
    }
    for (int c = 0; c < 4; ++c) out[i * 4 + static_cast<std::size_t>(c)] = rounded_pixel(sum[c]);
  }
}

#if defined(__x86_64__)

/// The same with AVX2 (Intel since 2013, AMD since 2015), by vectors of the compiler: <immintrin.h> takes long to
/// compile.
namespace avx2 {

using bytes16 = unsigned char __attribute__((vector_size(16)));
using chars32 = char __attribute__((vector_size(32)));
using words16 = short __attribute__((vector_size(32)));
using sums8 = int __attribute__((vector_size(32)));
using sums4 = int __attribute__((vector_size(16)));
using words8 = short __attribute__((vector_size(16)));

/// Reads and writes up to 15 bytes beyond `bytes`.
__attribute__((target("avx2"))) inline void mix_rows(const std::uint8_t* const* rows, const std::int16_t* weights,
                                                     int n, std::uint8_t* out, std::size_t bytes) noexcept {
  constexpr int half = 1 << (resample_axis::unit_bits - 1);
  for (std::size_t x = 0; x < bytes; x += 16) {
    sums8 low = {half, half, half, half, half, half, half, half};
    sums8 high = low;
    for (int k = 0; k < n; k += 2) {  // behind the last weight is a 0, for a row that need not be another one
      bytes16 a, b;
      std::memcpy(&a, rows[k] + x, 16);
      std::memcpy(&b, rows[k + 1 < n ? k + 1 : k] + x, 16);
      std::int32_t pair;
      std::memcpy(&pair, weights + k, 4);
      const sums8 pairs = {pair, pair, pair, pair, pair, pair, pair, pair};
      const auto w = reinterpret_cast<words16>(pairs);
      const bytes16 first = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      const bytes16 second = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
      low += __builtin_ia32_pmaddwd256(__builtin_convertvector(first, words16), w);
      high += __builtin_ia32_pmaddwd256(__builtin_convertvector(second, words16), w);
    }
    low >>= resample_axis::unit_bits;
    high >>= resample_axis::unit_bits;
    // 32 to 16 bits, to 8: each step within halves of a register.
    const words16 packed = __builtin_ia32_packssdw256(low, high);
    words8 front, back;
    std::memcpy(&front, &packed, 16);
    std::memcpy(&back, reinterpret_cast<const char*>(&packed) + 16, 16);
    const words8 begin = __builtin_shufflevector(front, back, 0, 1, 2, 3, 8, 9, 10, 11);
    const words8 end = __builtin_shufflevector(front, back, 4, 5, 6, 7, 12, 13, 14, 15);
    const auto done = __builtin_ia32_packuswb128(begin, end);
    std::memcpy(out + x, &done, 16);
  }
}

/// The weights of an axis as mix_pixels() multiplies with them: of each eight, those of pixels 0 and 1 four times, of 4
/// and 5, of 2 and 3, of 6 and 7.
inline void spread(const resample_axis& axis, std::vector<std::int32_t>& out) {
  out.resize(axis.weights.size() * 2);
  std::int32_t* to = out.data();
  for (std::size_t i = 0; i < axis.weights.size(); i += 8) {
    std::int32_t pairs[4];
    std::memcpy(pairs, &axis.weights[i], 16);
    for (const int pair : {0, 2, 1, 3}) {
      for (int k = 0; k < 4; ++k) *to++ = pairs[pair];
    }
  }
}

/// Reads up to 31 bytes beyond the row.
__attribute__((target("avx2"))) inline void mix_pixels(const std::uint8_t* row, const resample_axis& axis,
                                                       const std::int32_t* spread, std::uint8_t* out) noexcept {
  // Of four pixels in each half: the channels of 0 and 1 side by side, and of 2 and 3, as 16 bits.
  constexpr chars32 first = {0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,
                             0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1};
  constexpr chars32 second = {8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1,
                              8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1};
  constexpr int half = 1 << (resample_axis::unit_bits - 1);
  const std::size_t steps = axis.stride / resample_axis::chunk;
  for (std::size_t i = 0; i < axis.first.size(); ++i) {
    const std::uint8_t* from = row + std::ptrdiff_t(axis.first[i] - axis.begin) * 4;
    sums8 sum = {};
    const std::size_t used = (static_cast<std::size_t>(axis.count[i]) + 7) / 8;
    const std::int32_t* w = spread + i * steps * 16;
    for (std::size_t k = 0; k < used; ++k, from += 32, w += 16) {
      chars32 pixels;
      words16 a, b;
      std::memcpy(&pixels, from, 32);
      std::memcpy(&a, w, 32);
      std::memcpy(&b, w + 8, 32);
      const auto p = __builtin_ia32_pshufb256(pixels, first);
      const auto q = __builtin_ia32_pshufb256(pixels, second);
      sum += __builtin_ia32_pmaddwd256(reinterpret_cast<words16>(p), a) +
             __builtin_ia32_pmaddwd256(reinterpret_cast<words16>(q), b);
    }
    sums4 low, high;
    std::memcpy(&low, &sum, 16);
    std::memcpy(&high, reinterpret_cast<const char*>(&sum) + 16, 16);
    low = (low + high + half) >> resample_axis::unit_bits;
    const words8 words = __builtin_ia32_packssdw128(low, low);
    const auto pixel = __builtin_ia32_packuswb128(words, words);
    std::memcpy(out + i * 4, &pixel, 4);
  }
}

}  // namespace avx2

#endif

/// Resizes an image whose rows come one after the other. Keeps its memory for the next one.
class resampler {
 public:
  /// Room behind each row that next_row() fills, and in front of nothing: the loops read whole registers.
  static constexpr std::size_t padding = 64;

  resample_axis across, along;  // rows and columns; set before run()

  /// `next_row(memory)` stores the next row of the source, the first one being `across.begin`: `row_bytes` bytes, of
  /// which pixel `along.begin` is `skipped` bytes from the start. `emit(y, row)` is given each row of the result.
  template <class NextRow, class Emit>
  void run(std::size_t row_bytes, std::size_t skipped, NextRow&& next_row, Emit&& emit) {
    const std::size_t pitch = row_bytes + padding;
    const auto held = static_cast<std::size_t>(across.most);
    const std::size_t used = static_cast<std::size_t>(along.end - along.begin) * 4;
    ring_.resize(pitch * held);
    mixed_.resize(used + padding);
    row_.resize(along.first.size() * 4);
    rows_.resize(held);
    const bool fast = use_vectors();
#if defined(__x86_64__)
    if (fast) avx2::spread(along, spread_);
#endif
    int have = across.begin;  // the next row of the source
    for (std::size_t y = 0; y < across.first.size(); ++y) {
      const int n = across.count[y];
      for (; have < across.first[y] + n; ++have) next_row(ring_.data() + slot(have) * pitch);
      for (int k = 0; k < n; ++k) {
        rows_[static_cast<std::size_t>(k)] = ring_.data() + slot(across.first[y] + k) * pitch + skipped;
      }
      const std::int16_t* const weights = &across.weights[y * across.stride];
#if defined(__x86_64__)
      if (fast) {
        avx2::mix_rows(rows_.data(), weights, n, mixed_.data(), used);
        avx2::mix_pixels(mixed_.data(), along, spread_.data(), row_.data());
        emit(y, static_cast<const std::uint8_t*>(row_.data()));
        continue;
      }
#endif
      mix_rows(rows_.data(), weights, n, mixed_.data(), used);
      mix_pixels(mixed_.data(), along, row_.data());
      emit(y, static_cast<const std::uint8_t*>(row_.data()));
    }
  }

  bool plain = false;  // without vectors, for tests

 private:
  std::size_t slot(int row) const noexcept {
    return static_cast<std::size_t>(row - across.begin) % static_cast<std::size_t>(across.most);
  }
  bool use_vectors() const noexcept {
#if defined(__x86_64__)
    return !plain && __builtin_cpu_supports("avx2");
#else
    return false;
#endif
  }

  std::vector<std::uint8_t> ring_, mixed_, row_;
  std::vector<const std::uint8_t*> rows_;
  std::vector<std::int32_t> spread_;
};

}  // namespace millrace::detail
