// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/decode/detail/image_source.hpp>
#include <millrace/decode/detail/linked_formats.hpp>
#include <millrace/decode/detail/exif.hpp>
#include <millrace/decode/detail/pixel_writer.hpp>
#include <millrace/decode/detail/resample.hpp>
#include <millrace/decode/image.hpp>
#include <millrace/decode/image_format.hpp>
#include <millrace/decode/image_options.hpp>
#include <millrace/device/tensor_view.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/pixel_pool.hpp>

namespace millrace {

/// Makes tensors of one size and type of JPEG, PNG and WebP images of any size: decodes, turns upright, crops, resizes,
/// mirrors, normalises, and stores each value once, where it is to be. What a file is called says nothing: its first
/// bytes tell the format. Grey images and those with other colours become red, green and blue; alpha channels are left
/// out.
///
/// Which formats there are is a matter of the components that a program is linked with (millrace::jpeg, millrace::png,
/// millrace::webp). Thread-safe: calls on several threads use memory of their own, kept for reuse. Copies share it.
///
/// The result depends on the data, the options and the random numbers alone, to the bit. Errors: decode_error, which
/// name the place `at`, and in a stage without one that of the stage's item: no image, a format that is not linked, cut
/// short, corrupt, larger than .max_pixels. What lies below the part that is taken is not read, and so not checked.
template <class Formats = detail::linked_formats>
class basic_image_decoder {
 public:
  /// Throws configuration_error for options that contradict each other.
  explicit basic_image_decoder(const image_options& options)
      : options_(options), shared_(std::make_shared<shared>(options)) {
    if (options.height < 1 || options.width < 1 || options.height > largest || options.width > largest) {
      throw configuration_error("an image's .height and .width are numbers from 1 to 65535");
    }
    if (!(options.flip >= 0 && options.flip <= 1)) throw configuration_error("an image's .flip is a probability");
  }

  const image_options& options() const noexcept { return options_; }
  /// The shape of the tensors.
  shape dims() const {
    if (options_.layout == image_layout::chw) return shape{3, options_.height, options_.width};
    return shape{options_.height, options_.width, 3};
  }

  /// One tensor into memory of the caller, a row of a batch for example, of the shape dims() and the type of the
  /// options: anything else is a configuration_error. What a crop and a flip draw comes from `numbers`, a sample_rng or
  /// rng, the crop first.
  template <class Random>
  void into(const tensor_view& place, const bytes& data, Random& numbers, const where& at = where()) const {
    if (place.type() != options_.type || place.dims() != dims()) {
      throw configuration_error("images become " + std::string(name_of(options_.type)) + " " + dims().text() +
                                ", and the place for one is " + name_of(place.type()) + " " + place.dims().text());
    }
    with_source(data, at, [&](detail::image_source& source, workspace& w) { convert(source, w, place.data(), numbers); });
  }

  /// The whole image at its own size, upright, 8 bits a channel: of the options, size, crop, flip, filter, layout and
  /// type do not matter.
  image whole(const bytes& data, const where& at = where()) const {
    image out;
    with_source(data, at, [&](detail::image_source& source, workspace& w) { out = copy(source, w); });
    return out;
  }

 private:
  static constexpr int largest = 65535;
  // A JPEG's own reduction takes means of squares, a poor filter: at least so much is left to the good one.
  static constexpr double left_to_filter = 1.5;

  // What one thread needs, in a chain while it is idle.
  struct workspace {
    Formats formats;
    detail::resampler resampler;
    std::vector<std::uint8_t> turned;
    std::unique_ptr<workspace> next;
  };
  struct shared {
    explicit shared(const image_options& o) : writer(o) {}
    const detail::pixel_writer writer;
    pixel_pool pixels;
    std::mutex mutex;
    std::unique_ptr<workspace> idle;
  };

  template <class F>
  void with_source(const bytes& data, const where& at, F&& use) const {
    std::unique_ptr<workspace> w = take();
    detail::image_source* source = nullptr;
    try {
      source = &w->formats.source_for(image_format_of(data.view()));
      source->open(data, options_.tolerate_corruption);
      if (static_cast<std::uint64_t>(source->width) * static_cast<std::uint64_t>(source->height) >
          options_.max_pixels) {
        throw decode_error("the image has " + std::to_string(source->width) + "x" + std::to_string(source->height) +
                           " pixels, more than are allowed");
      }
      use(*source, *w);
      source->finish();
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

  /// A box of the upright image as one of the stored image.
  static image_box stored(const image_box& b, const detail::orientation& o, int width, int height) noexcept {
    image_box s = o.transposed ? image_box(b.top, b.left, b.bottom, b.right) : b;
    if (o.mirrored_x) s = image_box(width - s.right, s.top, width - s.left, s.bottom);
    if (o.mirrored_y) s = image_box(s.left, height - s.bottom, s.right, height - s.top);
    return s;
  }

  template <class Random>
  void convert(detail::image_source& source, workspace& w, void* tensor, Random& numbers) const {
    const detail::orientation turn(options_.upright ? source.orientation : 1);
    const image_box upright =
        options_.crop.box(turn.transposed ? source.height : source.width, turn.transposed ? source.width : source.height,
                          options_.width, options_.height, numbers);
    const bool flipped = options_.flip > 0 && numbers.uniform() < options_.flip;
    const image_box box = stored(upright, turn, source.width, source.height);
    const int columns = turn.transposed ? options_.height : options_.width;  // of the result, before it is turned
    const int rows = turn.transposed ? options_.width : options_.height;

    int scale = 1;
    if (options_.reduced_jpegs && source.reduces()) {
      const double most = std::min(box.width() / columns, box.height() / rows) / left_to_filter;
      while (scale < 8 && scale * 2 <= most) scale *= 2;
    }
    const int width = (source.width + scale - 1) / scale;
    const int height = (source.height + scale - 1) / scale;
    const auto edge = [scale](double pixel, bool upper) {
      return static_cast<int>(upper ? std::ceil(pixel / scale) : std::floor(pixel / scale));
    };
    const bool all = options_.crop.reaches_out();
    detail::resampler& r = w.resampler;
    r.along.set(options_.filter, box.left / scale, box.right / scale, all ? 0 : edge(box.left, false),
                all ? width : std::min(width, edge(box.right, true)), columns);
    r.across.set(options_.filter, box.top / scale, box.bottom / scale, all ? 0 : edge(box.top, false),
                 all ? height : std::min(height, edge(box.bottom, true)), rows);
    const detail::pixel_range wanted{r.along.begin, r.across.begin, r.along.end, r.across.end};
    int first = 0;
    int pixels = 0;
    source.begin(scale, wanted, first, pixels);

    const auto out_width = static_cast<std::size_t>(options_.width);
    const auto out_height = static_cast<std::size_t>(options_.height);
    const std::size_t row_bytes = static_cast<std::size_t>(pixels) * 4;
    const auto skipped = static_cast<std::size_t>(wanted.left - first) * 4;
    const auto next_row = [&source](std::uint8_t* row) { source.read_row(row); };
    if (!turn.transposed) {
      r.run(row_bytes, skipped, next_row, [&](std::size_t y, const std::uint8_t* row) {
        shared_->writer.write(tensor, out_width, out_height, turn.mirrored_y ? out_height - 1 - y : y, row,
                              turn.mirrored_x != flipped);
      });
      return;
    }
    w.turned.resize(out_width * out_height * 4);
    r.run(row_bytes, skipped, next_row, [&](std::size_t y, const std::uint8_t* row) {
      put_turned(w.turned.data(), out_width, static_cast<std::size_t>(columns), turn, turn.mirrored_y ? out_width - 1 - y : y,
                 row);
    });
    for (std::size_t y = 0; y < out_height; ++y) {
      shared_->writer.write(tensor, out_width, out_height, y, w.turned.data() + y * out_width * 4, flipped);
    }
  }

  /// Row of a stored image as column `x` of the upright one.
  static void put_turned(std::uint8_t* out, std::size_t width, std::size_t height, const detail::orientation& turn,
                         std::size_t x, const std::uint8_t* row) noexcept {
    for (std::size_t y = 0; y < height; ++y) {
      const std::size_t from = turn.mirrored_x ? height - 1 - y : y;
      std::memcpy(out + (y * width + x) * 4, row + from * 4, 4);
    }
  }

  image copy(detail::image_source& source, workspace& w) const {
    const detail::orientation turn(options_.upright ? source.orientation : 1);
    const auto columns = static_cast<std::size_t>(source.width);
    const auto rows = static_cast<std::size_t>(source.height);
    const std::size_t width = turn.transposed ? rows : columns;
    const std::size_t height = turn.transposed ? columns : rows;
    image out(shared_->pixels.acquire(width * height * 3), static_cast<int>(height), static_cast<int>(width), 3);
    int first = 0;
    int pixels = 0;
    source.begin(1, {0, 0, source.width, source.height}, first, pixels);
    w.turned.resize(static_cast<std::size_t>(pixels) * 4 + detail::resampler::padding);
    for (std::size_t y = 0; y < rows; ++y) {
      source.read_row(w.turned.data());
      const std::size_t to_y = turn.mirrored_y ? rows - 1 - y : y;
      for (std::size_t x = 0; x < columns; ++x) {
        const std::size_t to_x = turn.mirrored_x ? columns - 1 - x : x;
        const std::size_t to = turn.transposed ? to_x * width + to_y : to_y * width + to_x;
        std::memcpy(out.pixels.data() + to * 3, w.turned.data() + x * 4, 3);
      }
    }
    return out;
  }

  std::unique_ptr<workspace> take() const {
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
  void give_back(std::unique_ptr<workspace> w) const noexcept {
    std::lock_guard lock(shared_->mutex);
    w->next = std::move(shared_->idle);
    shared_->idle = std::move(w);
  }

  image_options options_;
  std::shared_ptr<shared> shared_;
};
using image_decoder = basic_image_decoder<>;

}  // namespace millrace
