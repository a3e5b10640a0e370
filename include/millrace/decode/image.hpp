// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/base/short_text.hpp>
#include <millrace/device/tensor.hpp>
#include <millrace/memory/pixel_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Formats of images that are known by their first bytes.
enum class image_format : std::uint8_t { unknown, jpeg, png, webp };

/// The format by content, whatever the name of the data.
constexpr image_format image_format_of(std::string_view data) noexcept {
  if (data.starts_with("\xff\xd8")) return image_format::jpeg;
  if (data.starts_with("\x89PNG\r\n\x1a\n")) return image_format::png;
  if (data.size() >= 12 && data.starts_with("RIFF") && data.substr(8, 4) == "WEBP") return image_format::webp;
  return image_format::unknown;
}

/// The name of a format of images that is not decoded; empty if the data begin like none.
constexpr std::string_view other_image_format(std::string_view data) noexcept {
  using namespace std::string_view_literals;
  const std::string_view box = data.size() >= 12 ? data.substr(4, 8) : std::string_view();
  if (box == "ftypavif"sv || box == "ftypavis"sv) return "an AVIF";
  for (const std::string_view brand : {"heic"sv, "heix"sv, "hevc"sv, "heim"sv, "heis"sv, "mif1"sv, "msf1"sv}) {
    if (box.starts_with("ftyp"sv) && box.substr(4) == brand) return "a HEIC";
  }
  if (data.starts_with("\xff\x0a"sv) || data.starts_with("\0\0\0\x0cJXL \r\n\x87\n"sv)) return "a JPEG XL";
  if (data.starts_with("\0\0\0\x0cjP  \r\n\x87\n"sv) || data.starts_with("\xff\x4f\xff\x51"sv)) return "a JPEG 2000";
  if (data.starts_with("GIF87a"sv) || data.starts_with("GIF89a"sv)) return "a GIF";
  if (data.starts_with("II*\0"sv) || data.starts_with("MM\0*"sv)) return "a TIFF";
  if (data.size() >= 14 && data.starts_with("BM"sv) && data.substr(6, 4) == "\0\0\0\0"sv) return "a BMP";
  return {};
}

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

/// The part of an image that is taken: values for image_options::crop.
namespace crop {

/// All of it, whatever its aspect ratio.
struct none_type {};
inline constexpr none_type none;

/// The middle, with the tensor's aspect ratio, as large as fits, times `fraction`. Resizing the shorter side to 256
/// and taking the 224x224 in the middle is a fraction of 224.0 / 256. Pixels beside it count if the filter reaches
/// them.
struct center {
  double fraction = 1;
};

/// A part of random size, aspect ratio and position; pixels outside of it do not count: RandomResizedCrop of
/// torchvision, the crop of the Inception papers (C. Szegedy et al., "Going Deeper with Convolutions", CVPR 2015,
/// section 6).
struct random_resized {
  std::array<double, 2> scale = {0.08, 1};          ///< of the image's area, from and to
  std::array<double, 2> ratio = {3.0 / 4, 4.0 / 3};  ///< of width to height, from and to
};

}  // namespace crop

/// The part of an image that is taken: crop::none, crop::center or crop::random_resized. Throws configuration_error for
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

  /// True if the box depends on random numbers.
  constexpr bool random() const noexcept { return kind_ == kind::random_resized; }
  /// True if pixels outside of the box may count in those along its edge.
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

/// A point of an image, in pixels from its upper left corner: the centre of the first pixel is 0.5, 0.5.
class image_point {
 public:
  double x = 0, y = 0;
  friend constexpr bool operator==(const image_point&, const image_point&) noexcept = default;
};

/// How an image became a tensor: the part that was taken of it, resized, then mirrored. image_decoder::into() returns
/// it, and gives another image of the sample the same one; moved() gives it to boxes and points of the image.
class image_geometry {
 public:
  int width = 0;  ///< of the image, turned upright, in pixels
  int height = 0;
  image_box taken;       ///< in the image's pixels
  bool flipped = false;  ///< left for right
  int out_width = 0;     ///< of the tensor, in pixels
  int out_height = 0;

  /// The box in pixels of the tensor, clipped to it; nullopt if the part that is left of it has no area, or less than
  /// `min_visibility` (0 to 1) of its area.
  std::optional<image_box> moved(const image_box& b, double min_visibility = 0) const noexcept {
    const image_box left(std::max(b.left, taken.left), std::max(b.top, taken.top), std::min(b.right, taken.right),
                         std::min(b.bottom, taken.bottom));
    const bool has_area = left.width() > 0 && left.height() > 0;
    if (!has_area || left.width() * left.height() < min_visibility * b.width() * b.height()) return std::nullopt;
    const image_point from = place_of(left.left, left.top);
    const image_point to = place_of(left.right, left.bottom);
    return flipped ? image_box(to.x, from.y, from.x, to.y) : image_box(from.x, from.y, to.x, to.y);
  }
  /// The point in pixels of the tensor; nullopt if it is outside of the part that was taken.
  std::optional<image_point> moved(const image_point& p) const noexcept {
    const bool inside = p.x >= taken.left && p.x <= taken.right && p.y >= taken.top && p.y <= taken.bottom;
    return inside ? std::optional<image_point>(place_of(p.x, p.y)) : std::nullopt;
  }

 private:
  image_point place_of(double x, double y) const noexcept {
    image_point p;
    p.x = (x - taken.left) * out_width / taken.width();
    p.y = (y - taken.top) * out_height / taken.height();
    if (flipped) p.x = out_width - p.x;
    return p;
  }
};

/// Decoded pixels: rows from the top, channels innermost (HWC), 8 bits each, no padding between rows.
class image {
 public:
  image() = default;
  /// Pixels of a decoder, or a std::vector<std::uint8_t> of your own.
  image(pixel_buffer data, int h, int w, int c) noexcept : pixels(std::move(data)), height(h), width(w), channels(c) {}

  pixel_buffer pixels;  ///< height * width * channels bytes
  int height = 0;
  int width = 0;
  int channels = 0;

  friend std::size_t byte_size(const image& i) noexcept { return i.pixels.size(); }
};

/// How pixels are weighted when an image is resized. When it becomes smaller, the filter's support grows with the
/// factor (antialiasing), as in Pillow and in torchvision with antialias=True; but for `nearest`.
enum class image_filter : std::uint8_t {
  nearest,   ///< the pixel under the centre
  bilinear,  ///< a triangle, 1 pixel to each side
  bicubic,   ///< Keys' cubic with a = -1/2, 2 pixels to each side
  lanczos    ///< sinc times sinc, 3 pixels to each side
};

/// The order of a tensor's dimensions: hwc has the channels innermost, chw outermost.
enum class image_layout : std::uint8_t { hwc, chw };

/// The values of a pixel in a tensor.
enum class image_channels : std::uint8_t {
  rgb,           ///< red, green and blue
  grey,          ///< one: (299 red + 587 green + 114 blue) / 1000, as Pillow's convert("L")
  class_numbers  ///< of a PNG with a palette its indices, of a grey one its values; the tensor is u8 and of two extents
};

/// The form of decoded images: see image_decoder and decode_images().
struct image_options {
  int height = 0;                                     ///< of the tensor, in pixels; needed
  int width = 0;                                      ///< of the tensor, in pixels; needed
  ::millrace::image_crop crop = ::millrace::crop::none;  ///< the part of the image that is resized to that
  double flip = 0;                                    ///< the probability that it is mirrored, left for right
  image_filter filter = image_filter::bilinear;
  image_channels channels = image_channels::rgb;
  image_layout layout = image_layout::hwc;
  dtype type = dtype::u8;  ///< u8: 0 to 255. f16, bf16, f32: (value / 255 - mean) / std, rounded to nearest
  /// Of red, green and blue (of grey the first); for the floating-point types.
  ::std::array<float, 3> mean = {0, 0, 0};
  ::std::array<float, 3> std = {1, 1, 1};
  bool upright = true;          ///< turns images as their EXIF orientation says
  bool reduced_jpegs = true;    ///< decodes JPEGs at 1/2, 1/4 or 1/8 if that is still 1.5 times the wanted size
  bool tolerate_corruption = false;                   ///< accepts JPEGs with corrupt data; else they are an error
  std::uint64_t max_pixels = std::uint64_t(1) << 28;  ///< larger images are refused before memory is allocated for them
  short_text<32> field = "";      ///< of a sample; empty: its first field that is an image by content
  short_text<32> label = "cls";   ///< of a sample: a class number for the tensor "label"; empty: no such tensor
  short_text<32> mask = "";       ///< of a sample: a PNG of class numbers for the tensor "mask"; empty: no such tensor
  int classes = 0;                ///< of masks: other numbers are an error, but for 255 (no class); 0: any number
  int one_hot = 0;  ///< classes: "label" is f32 of so many, 1 at the class number, as mixup() needs it; 0: it is i64
};

}  // namespace millrace
