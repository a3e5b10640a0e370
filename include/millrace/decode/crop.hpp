// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <millrace/base/error.hpp>

namespace millrace {

/// A rectangle of an image, in pixels from its upper left corner; edges need not fall between two pixels.
class image_box {
 public:
  constexpr image_box() noexcept = default;
  constexpr image_box(double l, double t, double r, double b) noexcept : left(l), top(t), right(r), bottom(b) {}
  double left = 0, top = 0, right = 0, bottom = 0;
  constexpr double width() const noexcept { return right - left; }
  constexpr double height() const noexcept { return bottom - top; }
  friend constexpr bool operator==(const image_box&, const image_box&) noexcept = default;
};

/// What part of an image is taken: values for image_options::crop.
namespace crop {

/// All of it, whatever its proportions.
struct none_type {};
inline constexpr none_type none;

/// The middle, in the proportions of the tensor, as large as fits, times `fraction`. Resizing the shorter side to 256
/// and taking the 224x224 in the middle is a fraction of 224.0 / 256. Pixels beside it count where the filter reaches
/// them.
struct center {
  double fraction = 1;
};

/// A part of random size, proportions and place, pixels beside it do not count: RandomResizedCrop of torchvision, the
/// crop of the Inception papers (C. Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, section 6).
struct random_resized {
  std::array<double, 2> scale = {0.08, 1};          ///< of the image's area, from and to
  std::array<double, 2> ratio = {3.0 / 4, 4.0 / 3};  ///< of width to height, from and to
};

}  // namespace crop

/// What part of an image is taken: crop::none, crop::center or crop::random_resized. Throws configuration_error for
/// ranges that hold nothing.
class image_crop {
 public:
  constexpr image_crop(crop::none_type = {}) noexcept {}
  constexpr image_crop(const crop::center& c) : kind_(kind::center), fraction_(c.fraction) {
    if (!(c.fraction > 0 && c.fraction <= 1)) {
      throw configuration_error("crop::center: .fraction is beyond 0 to 1");
    }
  }
  constexpr image_crop(const crop::random_resized& c) : kind_(kind::random_resized), random_(c) {
    if (!(c.scale[0] > 0 && c.scale[0] <= c.scale[1] && c.scale[1] <= 1)) {
      throw configuration_error("crop::random_resized: .scale goes from a number above 0 to one not below it, up to 1");
    }
    if (!(c.ratio[0] > 0 && c.ratio[0] <= c.ratio[1] && c.ratio[1] <= 1e6)) {
      throw configuration_error("crop::random_resized: .ratio goes from a number above 0 to one not below it");
    }
  }

  /// Whether the box depends on random numbers.
  constexpr bool random() const noexcept { return kind_ == kind::random_resized; }
  /// Whether pixels outside of the box may count in those along its edge.
  constexpr bool reaches_out() const noexcept { return kind_ == kind::center; }

  /// The box of an image of `width` x `height` pixels for a tensor of the proportions `out_width` to `out_height`.
  /// random_resized draws from `numbers`, a sample_rng or rng: per attempt one for the area and one for the ratio, in
  /// this order, then, as the rectangle fits, one for its top and one for its left.
  template <class Random>
  image_box box(int width, int height, int out_width, int out_height, Random& numbers) const {
    if (kind_ == kind::random_resized) return random_box(width, height, numbers);
    if (kind_ == kind::none) return image_box(0, 0, width, height);
    const double ratio = static_cast<double>(out_width) / out_height;
    const double w = std::min<double>(width, height * ratio) * fraction_;
    const double h = std::min<double>(height, width / ratio) * fraction_;
    return image_box((width - w) / 2, (height - h) / 2, (width + w) / 2, (height + h) / 2);
  }

 private:
  enum class kind : std::uint8_t { none, center, random_resized };

  template <class Random>
  image_box random_box(int width, int height, Random& numbers) const {
    const double area = static_cast<double>(width) * height;
    const double log_ratio[] = {std::log(random_.ratio[0]), std::log(random_.ratio[1])};
    const auto uniform = [&numbers](double from, double to) { return from + (to - from) * numbers.uniform(); };
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double target = area * uniform(random_.scale[0], random_.scale[1]);
      const double ratio = std::exp(uniform(log_ratio[0], log_ratio[1]));
      const double w = std::nearbyint(std::sqrt(target * ratio));  // ties to even, as Python's round()
      const double h = std::nearbyint(std::sqrt(target / ratio));
      if (w < 1 || h < 1 || w > width || h > height) continue;
      const auto top = static_cast<double>(numbers.below(static_cast<std::uint64_t>(height - h) + 1));
      const auto left = static_cast<double>(numbers.below(static_cast<std::uint64_t>(width - w) + 1));
      return image_box(left, top, left + w, top + h);
    }
    // The middle, in the proportions that come nearest.
    const double ratio = static_cast<double>(width) / height;
    double w = width;
    double h = height;
    if (ratio < random_.ratio[0]) h = std::max(1.0, std::nearbyint(w / random_.ratio[0]));
    if (ratio > random_.ratio[1]) w = std::max(1.0, std::nearbyint(h * random_.ratio[1]));
    const double top = std::floor((height - h) / 2);
    const double left = std::floor((width - w) / 2);
    return image_box(left, top, left + w, top + h);
  }

  kind kind_ = kind::none;
  double fraction_ = 1;
  crop::random_resized random_;
};

}  // namespace millrace
