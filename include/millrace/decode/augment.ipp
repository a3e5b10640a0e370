// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/augment.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

inline floats4 grey_of(floats4 r, floats4 g, floats4 b) noexcept { return r * 0.2989F + g * 0.587F + b * 0.114F; }

inline floats4 from_0_to_1(floats4 v) noexcept {
  const floats4 above = v > 0.0F ? v : floats4{};
  return above < 1.0F ? above : floats4{} + 1.0F;
}

/// The largest whole numbers not above values between -2^31 and 2^31.
inline floats4 floor_of(floats4 v) noexcept {
  using ints4 = std::int32_t __attribute__((vector_size(16)));
  const floats4 whole = __builtin_convertvector(__builtin_convertvector(v, ints4), floats4);
  return whole > v ? whole - 1.0F : whole;
}

/// The index of a row or column beyond the edge, mirrored about the last one.
inline std::size_t mirrored(int i, int n) noexcept {
  const int inside = std::abs(i);
  return static_cast<std::size_t>(inside < n ? inside : 2 * (n - 1) - inside);
}

/// Adds `weight` times a row of `n` values to another.
inline void add_row(float* to, const float* from, std::size_t n, float weight) noexcept {
  by_fours({to, from}, {to}, n, [weight](const floats4* in, floats4* out) { out[0] = in[0] + in[1] * weight; });
}

/// The logarithm of a number of the distribution Gamma(alpha, 1), after G. Marsaglia and W. Tsang, "A simple method for
/// generating gamma variables", 2000: as a logarithm, since small alphas give numbers below the smallest double.
inline double log_gamma_number(double alpha, sample_rng& numbers) {
  const auto positive = [&numbers] { return 1 - numbers.uniform(); };
  const double boost = alpha < 1 ? std::log(positive()) / alpha : 0;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double radius = std::sqrt(-2 * std::log(positive()));
    const double normal = radius * std::cos(6.283185307179586 * numbers.uniform());
    const double root = 1 + c * normal;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(positive()) < normal * normal / 2 + d - d * v + d * std::log(v)) return boost + std::log(d * v);
  }
}

class direction {
 public:
  explicit direction(double degrees) {
    const double angle = degrees * (3.141592653589793 / 180);
    cosine = std::cos(angle);
    sine = std::sin(angle);
  }
  double cosine, sine;
};

/// Calls f(y, x, from_y, from_x) for each pixel of an image that is turned about its middle: whole numbers are centres.
template <class F>
void each_turned(int height, int width, double degrees, F f) {
  const direction from(degrees);
  const double middle_x = (width - 1) / 2.0;
  const double middle_y = (height - 1) / 2.0;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      f(y, x, from.sine * (x - middle_x) + from.cosine * (y - middle_y) + middle_y,
        from.cosine * (x - middle_x) - from.sine * (y - middle_y) + middle_x);
    }
  }
}

template <class T>
void turn_by_nearest(const pixels<T>& p, double degrees, T fill) {
  std::vector<T> whole(p.data, p.data + p.area() * static_cast<std::size_t>(p.channels));
  const pixels<T> from(whole.data(), p.channels, p.height, p.width);
  each_turned(p.height, p.width, degrees, [&](int y, int x, double from_y, double from_x) {
    const int row = static_cast<int>(std::nearbyint(from_y));
    const int column = static_cast<int>(std::nearbyint(from_x));
    const bool inside = row >= 0 && row < p.height && column >= 0 && column < p.width;
    for (int c = 0; c < p.channels; ++c) p.row(c, y)[x] = inside ? from.row(c, row)[column] : fill;
  });
}

inline std::size_t checked_rows(const tensor_view& images, const tensor_view& labels) {
  const std::size_t rows = images.dims().rank() == 0 ? 0 : static_cast<std::size_t>(images.dims()[0]);
  if (images.type() != dtype::f32 || labels.type() != dtype::f32 || labels.dims().rank() != 2 ||
      static_cast<std::size_t>(labels.dims()[0]) != rows) {
    throw configuration_error(std::string("mixed are images and labels of f32, a row a sample, not ") +
                              name_of(images.type()) + " " + images.dims().text() + " and " + name_of(labels.type()) +
                              " " + labels.dims().text() + " (image_options::one_hot makes such labels)");
  }
  return rows;
}

/// Numbers of rows.
using row_numbers = std::vector<std::size_t>;

/// Each of these rows of `size` values becomes lambda times itself and 1 - lambda times the one before it.
inline void mix_rows(float* values, const row_numbers& rows, std::size_t size, float lambda) {
  if (rows.empty()) return;
  const std::vector<float> last(values + rows.back() * size, values + (rows.back() + 1) * size);
  const float rest = 1 - lambda;
  for (std::size_t i = rows.size(); i-- > 0;) {
    float* const row = values + rows[i] * size;
    const float* const other = i == 0 ? last.data() : values + rows[i - 1] * size;
    by_fours({row, other}, {row}, size,
             [lambda, rest](const floats4* in, floats4* out) { out[0] = in[1] * rest + in[0] * lambda; });
  }
}

inline void check_lambda(float lambda) {
  if (!(lambda >= 0 && lambda <= 1)) throw configuration_error("what is mixed has a lambda from 0 to 1");
}

inline row_numbers first_rows(std::size_t n) {
  row_numbers rows(n);
  for (std::size_t i = 0; i < n; ++i) rows[i] = i;
  return rows;
}

/// The rows of a batch that hold a sample: failures and the ends of epochs leave empty ones, of weight 0, anywhere.
inline row_numbers real_rows(const host_batch& b) {
  row_numbers rows;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (b.weights()[i] != 0) rows.push_back(i);
  }
  return rows;
}

inline sample_rng numbers_of(const host_batch& b, const row_numbers& rows) {
  const std::span<const origin> from = b.tags<origin>();
  if (from.empty()) detail::misused("a batch of samples without origins has no random numbers of its own");
  return from[rows.front()].random(purpose::mix);
}

inline void mix_up(const tensor_view& images, const tensor_view& labels, const row_numbers& rows, float lambda) {
  check_lambda(lambda);
  const std::size_t all = checked_rows(images, labels);
  if (all == 0) return;
  mix_rows(images.as<float>(), rows, images.elements() / all, lambda);
  mix_rows(labels.as<float>(), rows, labels.elements() / all, lambda);
}

inline void cut_mix(const tensor_view& images, const tensor_view& labels, const row_numbers& rows, float lambda, int y,
                    int x) {
  check_lambda(lambda);
  const std::size_t all = checked_rows(images, labels);
  if (rows.empty()) return;
  if (images.dims().rank() != 4) throw configuration_error("cutmix: the images are of four extents, chw");
  const auto channels = static_cast<int>(images.dims()[1]);
  const auto height = static_cast<int>(images.dims()[2]);
  const auto width = static_cast<int>(images.dims()[3]);
  if (y < 0 || y >= height || x < 0 || x >= width) throw configuration_error("cutmix: the point is not in the images");
  const double half = 0.5 * std::sqrt(1.0 - static_cast<double>(lambda));
  const int half_height = static_cast<int>(half * height);
  const int half_width = static_cast<int>(half * width);
  const int top = std::max(0, y - half_height);
  const int left = std::max(0, x - half_width);
  const int bottom = std::min(height, y + half_height);
  const int right = std::min(width, x + half_width);
  const std::size_t size = images.elements() / all;
  float* const values = images.as<float>();
  std::vector<float> last(values + rows.back() * size, values + (rows.back() + 1) * size);
  for (std::size_t i = rows.size(); i-- > 0;) {
    const pixels<float> to(values + rows[i] * size, channels, height, width);
    const pixels<float> from(i == 0 ? last.data() : values + rows[i - 1] * size, channels, height, width);
    for (int c = 0; c < channels; ++c) {
      for (int row = top; row < bottom; ++row) {
        std::copy(from.row(c, row) + left, from.row(c, row) + right, to.row(c, row) + left);
      }
    }
  }
  const double replaced = static_cast<double>(right - left) * (bottom - top) / (static_cast<double>(width) * height);
  mix_rows(labels.as<float>(), rows, labels.elements() / all, static_cast<float>(1 - replaced));
}

}  // namespace detail

namespace augment {

MILLRACE_INLINE void brightness(const pixels<float>& p, float factor) {
  const std::size_t n = p.area() * static_cast<std::size_t>(p.channels);
  detail::by_fours({p.data}, {p.data}, n, [factor](const detail::floats4* in, detail::floats4* out) {
    out[0] = detail::from_0_to_1(in[0] * factor);
  });
}

MILLRACE_INLINE void contrast(const pixels<float>& p, float factor) {
  const std::size_t n = p.area();
  double sum = 0;
  for (std::size_t y = 0; y < n; y += static_cast<std::size_t>(p.width)) {
    detail::floats4 of_row = {};
    const auto width = static_cast<std::size_t>(p.width);
    if (p.channels == 3) {
      detail::each_four({p.channel(0) + y, p.channel(1) + y, p.channel(2) + y}, width,
                        [&](const detail::floats4* in) { of_row += detail::grey_of(in[0], in[1], in[2]); });
    } else {
      for (int c = 0; c < p.channels; ++c) {
        detail::each_four({p.channel(c) + y}, width, [&](const detail::floats4* in) { of_row += in[0]; });
      }
    }
    sum += static_cast<double>(of_row[0]) + static_cast<double>(of_row[1]) + static_cast<double>(of_row[2]) +
           static_cast<double>(of_row[3]);
  }
  const double count = static_cast<double>(n) * (p.channels == 3 ? 1 : p.channels);
  const float grey = static_cast<float>(sum / count) * (1 - factor);
  detail::by_fours({p.data}, {p.data}, n * static_cast<std::size_t>(p.channels),
                   [factor, grey](const detail::floats4* in, detail::floats4* out) {
                     out[0] = detail::from_0_to_1(in[0] * factor + grey);
                   });
}

MILLRACE_INLINE void saturation(const pixels<float>& p, float factor) {
  if (p.channels != 3) return;
  const float rest = 1 - factor;
  float* const planes[] = {p.channel(0), p.channel(1), p.channel(2)};
  detail::by_fours({planes[0], planes[1], planes[2]}, planes, p.area(),
                   [factor, rest](const detail::floats4* in, detail::floats4* out) {
                     const detail::floats4 grey = detail::grey_of(in[0], in[1], in[2]) * rest;
                     for (int c = 0; c < 3; ++c) out[c] = detail::from_0_to_1(in[c] * factor + grey);
                   });
}

MILLRACE_INLINE void greyscale(const pixels<float>& p) {
  if (p.channels != 3) return;
  float* const planes[] = {p.channel(0), p.channel(1), p.channel(2)};
  detail::by_fours({planes[0], planes[1], planes[2]}, planes, p.area(),
                   [](const detail::floats4* in, detail::floats4* out) {
                     out[0] = out[1] = out[2] = detail::grey_of(in[0], in[1], in[2]);
                   });
}

MILLRACE_INLINE void hue(const pixels<float>& p, float turn) {
  if (p.channels != 3) return;
  using detail::floats4;
  float* const planes[] = {p.channel(0), p.channel(1), p.channel(2)};
  detail::by_fours({planes[0], planes[1], planes[2]}, planes, p.area(), [turn](const floats4* in, floats4* out) {
    const floats4 one = floats4{} + 1.0F;
    const floats4 r = in[0];
    const floats4 g = in[1];
    const floats4 b = in[2];
    const floats4 rg_most = r > g ? r : g;
    const floats4 rg_least = r < g ? r : g;
    const floats4 most = rg_most > b ? rg_most : b;
    const floats4 least = rg_least < b ? rg_least : b;
    const floats4 range = most - least;
    const floats4 saturation_of = range / (most == least ? one : most);
    const floats4 divisor = most == least ? one : range;
    const floats4 rc = (most - r) / divisor;
    const floats4 gc = (most - g) / divisor;
    const floats4 bc = (most - b) / divisor;
    floats4 h = most == r ? bc - gc : most == g ? rc + 2.0F - bc : gc + 4.0F - rc;
    h = h * (1.0F / 6.0F) + 1.0F;
    h = (h - detail::floor_of(h)) + turn;
    const floats4 six = (h - detail::floor_of(h)) * 6.0F;
    const floats4 sector = detail::floor_of(six);
    const floats4 f = six - sector;
    const floats4 p_of = detail::from_0_to_1(most * (1.0F - saturation_of));
    const floats4 q = detail::from_0_to_1(most * (1.0F - saturation_of * f));
    const floats4 t = detail::from_0_to_1(most * (1.0F - saturation_of + saturation_of * f));
    const auto is0 = (sector < 1.0F) | (sector >= 6.0F);
    const auto below2 = sector < 2.0F;
    const auto below3 = sector < 3.0F;
    const auto below4 = sector < 4.0F;
    const auto below5 = sector < 5.0F;
    out[0] = is0 ? most : below2 ? q : below4 ? p_of : below5 ? t : most;
    out[1] = is0 ? t : below3 ? most : below4 ? q : p_of;
    out[2] = is0 ? p_of : below2 ? p_of : below3 ? t : below5 ? most : q;
  });
}

MILLRACE_INLINE void erase(const pixels<float>& p, int top, int left, int height, int width, float value) {
  const int right = std::min(p.width, left + width);
  for (int c = 0; c < p.channels; ++c) {
    for (int y = std::max(0, top); y < std::min(p.height, top + height); ++y) {
      for (int x = std::max(0, left); x < right; ++x) p.row(c, y)[x] = value;
    }
  }
}

MILLRACE_INLINE std::pair<int, int> random_erasing::size_of(const pixels<float>& p, double area,
                                                            double proportion) const {
  const double erased = static_cast<double>(p.area()) * (scale[0] + (scale[1] - scale[0]) * area);
  const double low = std::log(ratio[0]);
  const double tall = std::exp(low + (std::log(ratio[1]) - low) * proportion);
  return {static_cast<int>(std::nearbyint(std::sqrt(erased * tall))),
          static_cast<int>(std::nearbyint(std::sqrt(erased / tall)))};
}

MILLRACE_INLINE void rotate(const pixels<float>& p, double degrees, image_filter filter, float fill) {
  if (filter != image_filter::nearest && filter != image_filter::bilinear) {
    throw configuration_error("rotate: the filter is nearest or bilinear");
  }
  if (filter == image_filter::nearest) return detail::turn_by_nearest(p, degrees, fill);
  std::vector<float> whole(p.data, p.data + p.area() * static_cast<std::size_t>(p.channels));
  const pixels<float> from(whole.data(), p.channels, p.height, p.width);
  detail::each_turned(p.height, p.width, degrees, [&](int y, int x, double from_y, double from_x) {
    const auto inside = [&p](int row, int column) {
      return row >= 0 && row < p.height && column >= 0 && column < p.width;
    };
    const int row = static_cast<int>(std::floor(from_y));
    const int column = static_cast<int>(std::floor(from_x));
    const auto down = static_cast<float>(from_y - row);
    const auto right = static_cast<float>(from_x - column);
    float weights[] = {(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right};
    if (inside(row, column) && inside(row + 1, column + 1)) {
      for (int c = 0; c < p.channels; ++c) {
        const float* const upper = from.row(c, row) + column;
        const float* const lower = upper + p.width;
        p.row(c, y)[x] = weights[0] * upper[0] + weights[1] * upper[1] + weights[2] * lower[0] + weights[3] * lower[1];
      }
      return;
    }
    float visible = 0;
    for (int i = 0; i < 4; ++i) {
      if (!inside(row + i / 2, column + i % 2)) weights[i] = 0;
      visible += weights[i];
    }
    for (int c = 0; c < p.channels; ++c) {
      float sum = 0;
      for (int i = 0; i < 4; ++i) {
        if (weights[i] != 0) sum += weights[i] * from.row(c, row + i / 2)[column + i % 2];
      }
      // An edge's values count by their weights twice, as torchvision's do.
      p.row(c, y)[x] = visible * sum + (1 - visible) * fill;
    }
  });
}

MILLRACE_INLINE void rotate(const pixels<std::uint8_t>& mask, double degrees, std::uint8_t fill) {
  detail::turn_by_nearest(mask, degrees, fill);
}

MILLRACE_INLINE image_point rotated(const image_point& p, double degrees, int height, int width) {
  const detail::direction to(degrees);
  const double x = p.x - width / 2.0;
  const double y = p.y - height / 2.0;
  return {.x = to.cosine * x + to.sine * y + width / 2.0, .y = to.cosine * y - to.sine * x + height / 2.0};
}

MILLRACE_INLINE void gaussian_blur(const pixels<float>& p, int size, double sigma) {
  const int reach = size / 2;
  if (size < 1 || size % 2 == 0 || reach >= p.width || reach >= p.height || !(sigma > 0)) {
    throw configuration_error("gaussian_blur: the size is odd and at most twice the image's shorter side, and sigma " +
                              std::string("positive"));
  }
  std::vector<float> weights(static_cast<std::size_t>(size));
  double sum = 0;
  for (int i = 0; i < size; ++i) sum += std::exp(-(i - reach) * (i - reach) / (2 * sigma * sigma));
  for (int i = 0; i < size; ++i) {
    weights[static_cast<std::size_t>(i)] =
        static_cast<float>(std::exp(-(i - reach) * (i - reach) / (2 * sigma * sigma)) / sum);
  }
  const auto width = static_cast<std::size_t>(p.width);
  std::vector<float> wide(width + 2 * static_cast<std::size_t>(reach));
  std::vector<float> across(p.area());
  for (int c = 0; c < p.channels; ++c) {
    std::fill(across.begin(), across.end(), 0.0F);
    for (int y = 0; y < p.height; ++y) {
      for (int x = -reach; x < p.width + reach; ++x) {
        wide[static_cast<std::size_t>(x + reach)] = p.row(c, y)[detail::mirrored(x, p.width)];
      }
      float* const to = across.data() + static_cast<std::size_t>(y) * width;
      for (std::size_t k = 0; k < weights.size(); ++k) detail::add_row(to, wide.data() + k, width, weights[k]);
    }
    for (int y = 0; y < p.height; ++y) {
      float* const to = p.row(c, y);
      std::fill(to, to + width, 0.0F);
      for (int k = 0; k < size; ++k) {
        const float* const row = across.data() + detail::mirrored(y + k - reach, p.height) * width;
        detail::add_row(to, row, width, weights[static_cast<std::size_t>(k)]);
      }
    }
  }
}

MILLRACE_INLINE void mixup(const tensor_view& images, const tensor_view& labels, float lambda) {
  detail::mix_up(images, labels, detail::first_rows(detail::checked_rows(images, labels)), lambda);
}

MILLRACE_INLINE void cutmix(const tensor_view& images, const tensor_view& labels, float lambda, int y, int x) {
  detail::cut_mix(images, labels, detail::first_rows(detail::checked_rows(images, labels)), lambda, y, x);
}

MILLRACE_INLINE double beta(double alpha, sample_rng& numbers) {
  if (!(alpha > 0)) throw configuration_error("beta: alpha is a number above 0");
  const double a = detail::log_gamma_number(alpha, numbers);
  const double b = detail::log_gamma_number(alpha, numbers);
  return 1 / (1 + std::exp(b - a));
}

MILLRACE_INLINE void mixup(const host_batch& b, double alpha) {
  const detail::row_numbers rows = detail::real_rows(b);
  if (rows.empty()) return;
  sample_rng numbers = detail::numbers_of(b, rows);
  detail::mix_up(b.field("image"), b.field("label"), rows, static_cast<float>(beta(alpha, numbers)));
}

MILLRACE_INLINE void cutmix(const host_batch& b, double alpha) {
  const detail::row_numbers rows = detail::real_rows(b);
  if (rows.empty()) return;
  const tensor_view images = b.field("image");
  if (images.dims().rank() != 4) throw configuration_error("cutmix: the images are of four extents, chw");
  sample_rng numbers = detail::numbers_of(b, rows);
  const auto lambda = static_cast<float>(beta(alpha, numbers));
  const auto y = static_cast<int>(numbers.below(static_cast<std::uint64_t>(images.dims()[2])));
  const auto x = static_cast<int>(numbers.below(static_cast<std::uint64_t>(images.dims()[3])));
  detail::cut_mix(images, b.field("label"), rows, lambda, y, x);
}

}  // namespace augment

}  // namespace millrace::inline MILLRACE_ABI
