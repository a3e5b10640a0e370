// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/decode/detail/image_source.hpp>
#include <millrace/decode/image.hpp>
#include <millrace/device/tensor.hpp>
#include <millrace/device/undecoded_image.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

class jpeg_source;
class png_source;
class webp_source;

/// How the decoder of each format is made; null for a format that the program is not linked with.
class source_makers {
 public:
  using maker = std::unique_ptr<image_source> (*)();
  maker jpeg = nullptr, png = nullptr, webp = nullptr;
};

/// Stands for a format that the program is not linked with.
struct absent_source {};

template <class Jpeg, class Png, class WebP>
class formats_of {
 public:
  static source_makers makers() noexcept {
    source_makers m;
    m.jpeg = maker_of<Jpeg>();
    m.png = maker_of<Png>();
    m.webp = maker_of<WebP>();
    return m;
  }

 private:
  template <class Source>
  static source_makers::maker maker_of() noexcept {
    if constexpr (std::is_same_v<Source, absent_source>) {
      return nullptr;
    } else {
      return [] { return std::unique_ptr<image_source>(std::make_unique<Source>()); };
    }
  }
};

// The components millrace::jpeg, millrace::png and millrace::webp, and their files for pkg-config, define these.
#if defined(MILLRACE_WITH_JPEG)
using linked_jpeg = jpeg_source;
#else
using linked_jpeg = absent_source;
#endif
#if defined(MILLRACE_WITH_PNG)
using linked_png = png_source;
#else
using linked_png = absent_source;
#endif
#if defined(MILLRACE_WITH_WEBP)
using linked_webp = webp_source;
#else
using linked_webp = absent_source;
#endif

#if defined(MILLRACE_SEPARATE_COMPILATION)
/// The formats that the compiled bodies are linked with.
class linked_formats {
 public:
  static source_makers makers() noexcept;
};
#else
/// Parts of one program may be built with different ones: functions that name this type are different ones then.
using linked_formats = formats_of<linked_jpeg, linked_png, linked_webp>;
#endif

/// A resize: the pixels in `box`, of `columns` x `rows`, become `width` x `height` pixels. The filter reaches
/// pixels beside the box if there are any; beside the image there are none, and the others weigh the more.
class resize_geometry {
 public:
  int columns = 0, rows = 0;
  image_box box;
  int width = 0, height = 0;
  image_filter filter = image_filter::bilinear;
  friend bool operator==(const resize_geometry&, const resize_geometry&) noexcept = default;
};

/// Resizes images of three channels of 8 bits, as Pillow does: the filter's weights, wider if the image becomes
/// smaller, first along the rows and then along the columns. Keeps its memory for the next image and, for one of the
/// same geometry, the weights. Whole numbers: the result is the same to the bit on every processor. One thread at a
/// time.
class resizer {
 public:
  /// `plain`: without vectors, for tests.
  explicit resizer(bool plain = false);
  resizer(resizer&&) noexcept;
  resizer& operator=(resizer&&) noexcept;
  ~resizer();

  /// Begins an image. Throws std::bad_alloc.
  void begin(const resize_geometry& g);
  /// The next row of the image: four bytes a pixel, red, green, blue and one that means nothing. After the last one the
  /// result is there.
  void put_row(const std::uint8_t* row) noexcept;
  /// Row `y` of the result, one byte a pixel, of channel 0, 1 or 2. Stays until the next begin().
  const std::uint8_t* row(int channel, std::size_t y) const noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// Stores rows of channels of 8 bits as values of the tensor: there are only 256 input values, so a table holds the
/// results.
class pixel_writer {
 public:
  explicit pixel_writer(const image_options& o);

  /// Row `y` of a tensor of `width` x `height` that begins at `tensor`, from the rows of red, green and blue,
  /// or that of the only channel; `mirrored`: its last pixel first.
  void write(void* tensor, std::size_t width, std::size_t height, std::size_t y, const std::uint8_t* const* channels,
             bool mirrored) const noexcept;

 private:
  /// True if multiplication and addition give the very values of the table: it is rounded once more, so with some means
  /// they do not.
  bool is_linear() const;
  /// By vectors, if the processor has them; returns how many of the row's pixels.
  std::size_t store_vectors(void* tensor, std::size_t width, std::size_t height, std::size_t y,
                            const std::uint8_t* const* channels, bool mirrored) const noexcept;

  std::size_t count_;  // of the channels: 3 or 1
  image_layout layout_;
  dtype type_;
  float scale_[3] = {};
  float offset_[3] = {};
  bool vectors_ = false;  // see store_vectors()
  std::vector<float> wide_;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// Turns JPEG, PNG and WebP images of any size into tensors of one size and type: decodes, rotates upright, crops,
/// resizes, mirrors, normalises, and stores each value once, at its destination. The format is detected from the first
/// bytes, not from the name. Grey images and those of other colour spaces are converted to RGB; alpha channels are
/// dropped. With image_channels::class_numbers images are masks, resized by image_filter::nearest.
///
/// The components that a program is linked with (millrace::jpeg, millrace::png, millrace::webp) decide which formats
/// there are. Thread-safe: calls on several threads use memory of their own, kept for reuse. Copies share it.
///
/// The result depends on the data, the options and the random numbers alone, to the bit. Errors: decode_error, which
/// name the place `at`, and in a stage without one that of the stage's item: no image, a format that is not linked, cut
/// short, corrupt, larger than .max_pixels. Rows below the part that is taken are not read, and so not checked.
///
/// Data of a JPEG that contradict the format but cost no pixel (bytes before a marker, an unknown revision of JFIF or
/// code of Adobe's) are no error: such images are counted, and the first of each kind in a process is a line in
/// the log.
class image_decoder {
 public:
  /// Throws configuration_error for options that contradict each other. A template so that parts of a program that are
  /// linked with different formats do not take each other's.
  template <class Formats = detail::linked_formats>
  explicit image_decoder(const image_options& options) : image_decoder(options, Formats::makers()) {}
  image_decoder(const image_options& options, const detail::source_makers& formats);

  const image_options& options() const noexcept { return options_; }
  /// The shape of the tensors.
  shape dims() const;
  /// How many images have been decoded whose data were odd and cost no pixel, by this decoder and its copies.
  std::uint64_t odd_images() const noexcept;

  /// One tensor into memory of the caller, a row of a batch for example, of the shape dims() and the type of the
  /// options: anything else is a configuration_error. Crop and flip draw their numbers from `numbers`, a sample_rng or
  /// rng, the crop first; returns what became of them.
  template <class Random>
  requires requires(Random& numbers) { numbers.uniform(); }
  image_geometry into(const tensor_view& place, const bytes& data, Random& numbers, const where& at = where()) const {
    const auto draw = [](const image_options& o, int width, int height, void* from) {
      auto& random = *static_cast<Random*>(from);
      image_geometry g;
      g.taken = o.crop.box(width, height, o.width, o.height, random);
      g.flipped = o.flip > 0 && random.uniform() < o.flip;
      return g;
    };
    return into(place, data, +draw, &numbers, at);
  }
  /// The same with the crop and flip of another image of the sample, or with ones of your own: .crop and .flip of the
  /// options do not matter. decode_error if this image, turned upright, has another size than the geometry's;
  /// configuration_error if the geometry's tensor has another one than the options', or no part of its image is taken.
  void into(const tensor_view& place, const bytes& data, const image_geometry& g, const where& at = where()) const;

  /// The whole image at its own size, upright, 8 bits a channel: of the options, size, crop, flip, filter, channels,
  /// layout and type do not matter. The memory is a pool's and may outlive the decoder.
  image whole(const bytes& data, const where& at = where()) const;
  /// The image with only its header read: for write_image(), and to_device() decodes it, on a GPU or on the host. The
  /// options count as for whole().
  undecoded_image undecoded(const bytes& data, const where& at = where()) const;

 private:
  /// Chooses the part of an upright image of that size, and if it is mirrored: of the result, nothing else counts.
  using draw_part = image_geometry (*)(const image_options& options, int width, int height, void* from);

  // The state of one thread, in a chain while it is idle.
  struct workspace;
  struct shared;

  image_geometry into(const tensor_view& place, const bytes& data, draw_part draw, void* from, const where& at) const;
  template <class Use>
  void with_source(const bytes& data, const where& at, Use&& use, bool to_the_end = true) const;
  image_geometry convert(detail::image_source& source, workspace& w, void* tensor, draw_part draw, void* from) const;
  void check_classes(const std::uint8_t* row) const;
  image copy(detail::image_source& source, workspace& w) const;

  std::unique_ptr<workspace> take() const;
  void give_back(std::unique_ptr<workspace> w) const noexcept;

  image_options options_;
  std::shared_ptr<shared> shared_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/image_decoder.ipp>
#endif
