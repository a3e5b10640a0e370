// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/decode/image.hpp>
#include <millrace/decode/pixels.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/tensor.hpp>

/// \file
/// Augmentations: functions of an image for decode_images(options, f), and of batches. They change values from 0 to 1
/// in place, by the formulas of torchvision's transforms.v2 on tensors of floats, and equal it within rounding. Thread-
/// safe for different images. "Colour" functions leave images of another number of channels than 3 as they are.

namespace millrace::inline MILLRACE_ABI::augment {

/// Multiplies each value by `factor`, up to 1.
void brightness(const pixels<float>& p, float factor);
/// Blends the image with the mean of its grey values: a factor of 0 gives that, 1 the image, above 1 more contrast.
void contrast(const pixels<float>& p, float factor);
/// Blends the image with its grey one likewise. Colour.
void saturation(const pixels<float>& p, float factor);
/// Turns hues by `turn` of a full circle, -0.5 to 0.5. Colour.
void hue(const pixels<float>& p, float turn);
/// Gives the three channels the grey value 0.2989 red + 0.587 green + 0.114 blue. Colour.
void greyscale(const pixels<float>& p);

/// Fills a rectangle, the part of it that is inside of the image, with one value.
void erase(const pixels<float>& p, int top, int left, int height, int width, float value = 0);

/// Turns the image about its middle, counterclockwise, at its size; pixels from outside of it are `fill`, as with
/// torchvision's `fill=0`. Filters are bilinear and nearest; throws configuration_error for another one.
void rotate(const pixels<float>& p, double degrees, image_filter filter = image_filter::nearest, float fill = 0);
/// The same for a mask, by nearest; 255 is no class.
void rotate(const pixels<std::uint8_t>& mask, double degrees, std::uint8_t fill = 255);
/// The place that a point of an image of `height` x `width` pixels has after rotate(); it may be outside of the image.
image_point rotated(const image_point& p, double degrees, int height, int width);

/// Convolves with a Gaussian of `size` x `size` values, mirrored at the edges. Throws configuration_error unless `size`
/// is odd and at most twice the shorter side, and `sigma` positive.
void gaussian_blur(const pixels<float>& p, int size, double sigma);

/// ColorJitter: the four functions in a random order, with factors between 1 - x and 1 + x (not below 0), and turns of
/// hues between -hue and hue. A part of 0 is left out. Draws, from a sample_rng or rng, three numbers for the order,
/// then one for each part that is applied.
class color_jitter {
 public:
  float brightness = 0;
  float contrast = 0;
  float saturation = 0;
  float hue = 0;  ///< up to 0.5

  template <class Random>
  void operator()(const pixels<float>& p, Random& numbers) const {
    int order[] = {0, 1, 2, 3};
    for (std::uint64_t n = 4; n > 1; --n) std::swap(order[n - 1], order[numbers.below(n)]);
    const auto factor = [&numbers](float x) {
      const float from = x < 1 ? 1 - x : 0;
      return from + (1 + x - from) * static_cast<float>(numbers.uniform());
    };
    for (const int part : order) {
      if (part == 0 && brightness > 0) augment::brightness(p, factor(brightness));
      if (part == 1 && contrast > 0) augment::contrast(p, factor(contrast));
      if (part == 2 && saturation > 0) augment::saturation(p, factor(saturation));
      if (part == 3 && hue > 0) augment::hue(p, hue * (2 * static_cast<float>(numbers.uniform()) - 1));
    }
  }
};

/// RandomErasing: with a probability, fills a rectangle of random area, proportions and place. The rectangle is drawn
/// as that of crop::random_resized, up to ten times; if none fits, the image stays as it is.
class random_erasing {
 public:
  double probability = 0.5;
  std::array<double, 2> scale = {0.02, 0.33};  ///< of the image's area, from and to
  std::array<double, 2> ratio = {0.3, 3.3};    ///< of height to width, from and to
  float value = 0;

  template <class Random>
  void operator()(const pixels<float>& p, Random& numbers) const {
    if (numbers.uniform() >= probability) return;
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double area = numbers.uniform();
      const double proportion = numbers.uniform();
      const auto [h, w] = size_of(p, area, proportion);
      if (h >= p.height || w >= p.width) continue;
      const auto top = static_cast<int>(numbers.below(static_cast<std::uint64_t>(p.height - h) + 1));
      const auto left = static_cast<int>(numbers.below(static_cast<std::uint64_t>(p.width - w) + 1));
      return erase(p, top, left, h, w, value);
    }
  }

 private:
  /// Height and width for numbers from 0 to 1.
  std::pair<int, int> size_of(const pixels<float>& p, double area, double proportion) const;
};

/// MixUp: image i of the batch becomes lambda times itself and 1 - lambda times image i - 1, the first one's partner is
/// the last, and the labels likewise. `images` and `labels` are f32, a row a sample: image_options::one_hot makes such
/// labels. Throws configuration_error for other types, another number of rows, and a lambda that is not from 0 to 1.
void mixup(const tensor_view& images, const tensor_view& labels, float lambda);
/// CutMix: a rectangle of image i, of 1 - lambda of the area about the point `y`, `x`, becomes that of image i - 1, and
/// the labels are mixed by the part that was replaced. `images` is f32 and chw. Throws as mixup(), and for a point that
/// is not in the images.
void cutmix(const tensor_view& images, const tensor_view& labels, float lambda, int y, int x);

/// A number of the distribution Beta(alpha, alpha), of uniform ones of `numbers`: as many as it takes.
double beta(double alpha, sample_rng& numbers);

/// mixup() of the fields "image" and "label" of a batch, with lambda of Beta(alpha, alpha) by the random numbers of its
/// first sample, for purpose::mix: the same on any thread and after a resume. Rows of weight 0 (failures, padding) stay
/// as they are, and are mixed into none. For map_concurrent() between batch() and to_device().
void mixup(const host_batch& b, double alpha);
/// cutmix() likewise; the point is drawn after lambda.
void cutmix(const host_batch& b, double alpha);

}  // namespace millrace::inline MILLRACE_ABI::augment

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/augment.ipp>
#endif
