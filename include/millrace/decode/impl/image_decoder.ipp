// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
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
#include <millrace/decode/detail/exif.hpp>
#include <millrace/decode/detail/image_source.hpp>
#include <millrace/decode/detail/pixel_writer.hpp>
#include <millrace/decode/detail/resizer.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/decode/image_format.hpp>
#include <millrace/memory/pixel_pool.hpp>

namespace millrace {

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
  const double radius = filter == image_filter::lanczos ? 3 : filter == image_filter::bicubic ? 2 : 1;
  return filter == image_filter::nearest ? 1 : static_cast<int>(std::ceil(radius * std::max(1.0, (to - from) / size)));
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

  /// Where a source writes rows of so many pixels, four bytes each, and they are read from. Aligned to no more than 8
  /// bytes: what is aligned to its vectors libjpeg-turbo writes past the caches.
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
};

MILLRACE_INLINE image_decoder::image_decoder(const image_options& options, const detail::source_makers& formats)
    : options_(options), shared_(std::make_shared<shared>(options, formats)) {
  if (options.height < 1 || options.width < 1 || options.height > detail::largest_tensor ||
      options.width > detail::largest_tensor) {
    throw configuration_error("an image's .height and .width are numbers from 1 to 65535");
  }
  if (!(options.flip >= 0 && options.flip <= 1)) throw configuration_error("an image's .flip is a probability");
}

MILLRACE_INLINE shape image_decoder::dims() const {
  if (options_.layout == image_layout::chw) return shape{3, options_.height, options_.width};
  return shape{options_.height, options_.width, 3};
}

MILLRACE_INLINE void image_decoder::into(const tensor_view& place, const bytes& data, draw_part draw, void* numbers,
                                         const where& at) const {
  if (place.type() != options_.type || place.dims() != dims()) {
    throw configuration_error("images become " + std::string(name_of(options_.type)) + " " + dims().text() +
                              ", and the place for one is " + name_of(place.type()) + " " + place.dims().text());
  }
  with_source(data, at,
              [&](detail::image_source& source, workspace& w) { convert(source, w, place.data(), draw, numbers); });
}

MILLRACE_INLINE image image_decoder::whole(const bytes& data, const where& at) const {
  image out;
  with_source(data, at, [&](detail::image_source& source, workspace& w) { out = copy(source, w); });
  return out;
}

MILLRACE_INLINE undecoded_image image_decoder::undecoded(const bytes& data, const where& at) const {
  /// Where a device leaves an image to the host.
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
    source = &w->source_for(image_format_of(data.view()), shared_->formats);
    source->open(data, options_.tolerate_corruption);
    if (static_cast<std::uint64_t>(source->width) * static_cast<std::uint64_t>(source->height) > options_.max_pixels) {
      throw decode_error("the image has " + std::to_string(source->width) + "x" + std::to_string(source->height) +
                         " pixels, more than are allowed");
    }
    use(*source, *w);
    if (to_the_end) source->finish();
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

MILLRACE_INLINE void image_decoder::convert(detail::image_source& source, workspace& w, void* tensor, draw_part draw,
                                            void* numbers) const {
  const detail::orientation turn(options_.upright ? source.orientation : 1);
  const part taken = draw(options_, turn.transposed ? source.height : source.width,
                          turn.transposed ? source.width : source.height, numbers);
  const image_box box = detail::stored(taken.box, turn, source.width, source.height);
  const int columns = turn.transposed ? options_.height : options_.width;  // of the result, before it is turned
  const int rows = turn.transposed ? options_.width : options_.height;

  int scale = 1;
  if (options_.reduced_jpegs && source.reduces()) {
    const double most = std::min(box.width() / columns, box.height() / rows) / detail::left_to_filter;
    while (scale < 8 && scale * 2 <= most) scale *= 2;
  }
  const int width = (source.width + scale - 1) / scale;
  const int height = (source.height + scale - 1) / scale;
  // Of the image that the source makes, what is read.
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
    r.put_row(y, line + static_cast<std::size_t>(wanted.left - first) * 4);
  }
  r.run();

  const auto out_width = static_cast<std::size_t>(options_.width);
  const auto out_height = static_cast<std::size_t>(options_.height);
  if (turn.transposed) w.turned.resize(out_width * 3);
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
    shared_->writer.write(tensor, out_width, out_height, y, channels,
                          taken.flipped != (!turn.transposed && turn.mirrored_x));
  }
}

MILLRACE_INLINE image image_decoder::copy(detail::image_source& source, workspace& w) const {
  const detail::orientation turn(options_.upright ? source.orientation : 1);
  const auto columns = static_cast<std::size_t>(source.width);
  const auto rows = static_cast<std::size_t>(source.height);
  const std::size_t width = turn.transposed ? rows : columns;
  const std::size_t height = turn.transposed ? columns : rows;
  image out(shared_->pixels.acquire(width * height * 3), static_cast<int>(height), static_cast<int>(width), 3);
  int first = 0;
  int pixels = 0;
  source.begin(1, {0, 0, source.width, source.height}, first, pixels);
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
