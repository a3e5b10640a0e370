// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// An image in memory that it does not own: planes of `height` rows of `width` values, one plane a channel, no padding.
/// A plain value.
template <class T>
class pixels {
 public:
  pixels(T* values, int c, int h, int w) noexcept : data(values), channels(c), height(h), width(w) {}

  T* data;
  int channels;
  int height;
  int width;

  /// The number of values of a channel.
  std::size_t area() const noexcept { return static_cast<std::size_t>(height) * static_cast<std::size_t>(width); }
  T* channel(int c) const noexcept { return data + static_cast<std::size_t>(c) * area(); }
  T* row(int c, int y) const noexcept {
    return channel(c) + static_cast<std::size_t>(y) * static_cast<std::size_t>(width);
  }
};

namespace detail {

/// Vectors that every processor has. In the compiler's vectors, since g++ 12 makes none of a plain loop at -O2.
using floats4 = float __attribute__((vector_size(16)));

/// Calls f with four values of each of `in`, as floats4, `n` of each in all; beyond them there are zeros.
template <std::size_t In, class F>
void each_four(const float* const (&in)[In], std::size_t n, F f) {
  for (std::size_t i = 0; i < n; i += 4) {
    floats4 from[In] = {};
    for (std::size_t k = 0; k < In; ++k) {
      if (n - i >= 4) {
        std::memcpy(&from[k], in[k] + i, sizeof(floats4));
      } else {
        std::memcpy(&from[k], in[k] + i, (n - i) * sizeof(float));
      }
    }
    f(from);
  }
}

/// The same, and f sets four values of each of `out`, which may be one of `in`.
template <std::size_t In, std::size_t Out, class F>
void by_fours(const float* const (&in)[In], float* const (&out)[Out], std::size_t n, F f) {
  std::size_t i = 0;
  each_four(in, n, [&](const floats4* from) {
    floats4 to[Out];
    f(from, to);
    for (std::size_t k = 0; k < Out; ++k) {
      if (n - i >= 4) {
        std::memcpy(out[k] + i, &to[k], sizeof(floats4));
      } else {
        std::memcpy(out[k] + i, &to[k], (n - i) * sizeof(float));
      }
    }
    i += 4;
  });
}

}  // namespace detail

}  // namespace millrace::inline MILLRACE_ABI
