// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zimg.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
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

namespace millrace::detail {

source_makers linked_formats::makers() noexcept { return formats_of<linked_jpeg, linked_png, linked_webp>::makers(); }

}  // namespace millrace::detail

#endif

namespace millrace::detail {

struct resizer::state {
  static constexpr std::size_t alignment = 64;  // zimg's, of memory and of rows
  static constexpr std::size_t aligned(std::size_t n) noexcept { return (n + alignment - 1) / alignment * alignment; }

  /// Aligned memory that only grows, and forgets what was in it then.
  class memory {
   public:
    std::uint8_t* at_least(std::size_t size) {
      if (size > size_) {
        data_.reset();
        size_ = 0;
        data_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(alignment, aligned(size))));
        if (data_ == nullptr) throw std::bad_alloc();
        size_ = size;
      }
      return data_.get();
    }
    std::uint8_t* get() const noexcept { return data_.get(); }

   private:
    struct freed {
      void operator()(std::uint8_t* p) const noexcept { std::free(p); }
    };
    std::unique_ptr<std::uint8_t, freed> data_;
    std::size_t size_ = 0;
  };
  struct graph_freed {
    void operator()(zimg_filter_graph* g) const noexcept { zimg_filter_graph_free(g); }
  };

  [[noreturn]] static void fail() {
    char text[256] = {};
    if (zimg_get_last_error(text, sizeof text) == ZIMG_ERROR_OUT_OF_MEMORY) throw std::bad_alloc();
    throw decode_error(std::string("the image cannot be resized: ") + text);
  }

  void prepare();

  bool plain = false;
  resize_geometry geometry;
  std::unique_ptr<zimg_filter_graph, graph_freed> graph;
  memory from, to, scratch;  // the planes one after the other
  std::size_t from_pitch = 0, to_pitch = 0;
};

MILLRACE_INLINE resizer::resizer(bool plain) : state_(std::make_unique<state>()) { state_->plain = plain; }
MILLRACE_INLINE resizer::resizer(resizer&&) noexcept = default;
MILLRACE_INLINE resizer& resizer::operator=(resizer&&) noexcept = default;
MILLRACE_INLINE resizer::~resizer() = default;

/// A plan for one plane, which takes zimg less time than one for three.
MILLRACE_INLINE void resizer::state::prepare() {
  graph.reset();
  zimg_image_format source, result;
  zimg_image_format_default(&source, ZIMG_API_VERSION);
  source.pixel_type = ZIMG_PIXEL_BYTE;
  source.color_family = ZIMG_COLOR_GREY;
  // Nothing is cut off at the limits, and 8 bits become 16 by a shift: no slower way gives other values.
  source.pixel_range = ZIMG_RANGE_LIMITED;
  result = source;
  source.width = static_cast<unsigned>(geometry.columns);
  source.height = static_cast<unsigned>(geometry.rows);
  source.active_region = {geometry.box.left, geometry.box.top, geometry.box.width(), geometry.box.height()};
  result.width = static_cast<unsigned>(geometry.width);
  result.height = static_cast<unsigned>(geometry.height);

  zimg_graph_builder_params how;
  zimg_graph_builder_params_default(&how, ZIMG_API_VERSION);
  how.dither_type = ZIMG_DITHER_NONE;
  // Not ZIMG_CPU_AUTO_64B: with AVX-512 some pixels of some images come out wrong (seen in 3.0.4), and below 16 columns
  // with every kind of vectors.
  how.cpu_type = plain || geometry.columns < 16 ? ZIMG_CPU_NONE : ZIMG_CPU_AUTO;
  switch (geometry.filter) {
    case image_filter::nearest:
      how.resample_filter = ZIMG_RESIZE_POINT;
      break;
    case image_filter::bilinear:
      how.resample_filter = ZIMG_RESIZE_BILINEAR;
      break;
    case image_filter::bicubic:
      how.resample_filter = ZIMG_RESIZE_BICUBIC;
      how.filter_param_a = 0;  // b and c of Mitchell and Netravali: Keys' with a = -c
      how.filter_param_b = 0.5;
      break;
    case image_filter::lanczos:
      how.resample_filter = ZIMG_RESIZE_LANCZOS;
      how.filter_param_a = 3;
      break;
  }
  graph.reset(zimg_filter_graph_build(&source, &result, &how));
  if (graph == nullptr) fail();
  std::size_t size = 0;
  if (zimg_filter_graph_get_tmp_size(graph.get(), &size) != ZIMG_ERROR_SUCCESS) fail();
  scratch.at_least(size);
}

MILLRACE_INLINE void resizer::begin(const resize_geometry& g) {
  state& s = *state_;
  if (s.graph == nullptr || !(g == s.geometry)) {
    s.geometry = g;
    s.prepare();
  }
  s.from_pitch = state::aligned(static_cast<std::size_t>(g.columns));
  s.to_pitch = state::aligned(static_cast<std::size_t>(g.width));
  s.from.at_least(s.from_pitch * static_cast<std::size_t>(g.rows) * 3);
  s.to.at_least(s.to_pitch * static_cast<std::size_t>(g.height) * 3);
}

MILLRACE_INLINE void resizer::put_row(int y, const std::uint8_t* row) noexcept {
  state& s = *state_;
  const std::size_t plane = s.from_pitch * static_cast<std::size_t>(s.geometry.rows);
  std::uint8_t* const red = s.from.get() + s.from_pitch * static_cast<std::size_t>(y);
  std::uint8_t* const green = red + plane;
  std::uint8_t* const blue = green + plane;
  const auto columns = static_cast<std::size_t>(s.geometry.columns);
  for (std::size_t x = 0; x < columns; ++x) {
    red[x] = row[x * 4];
    green[x] = row[x * 4 + 1];
    blue[x] = row[x * 4 + 2];
  }
}

MILLRACE_INLINE void resizer::run() {
  state& s = *state_;
  const std::size_t from_plane = s.from_pitch * static_cast<std::size_t>(s.geometry.rows);
  const std::size_t to_plane = s.to_pitch * static_cast<std::size_t>(s.geometry.height);
  for (std::size_t c = 0; c < 3; ++c) {
    zimg_image_buffer_const from = {};
    from.version = ZIMG_API_VERSION;
    from.plane[0].data = s.from.get() + from_plane * c;
    from.plane[0].stride = static_cast<std::ptrdiff_t>(s.from_pitch);
    from.plane[0].mask = ZIMG_BUFFER_MAX;
    zimg_image_buffer to = {};
    to.version = ZIMG_API_VERSION;
    to.plane[0].data = s.to.get() + to_plane * c;
    to.plane[0].stride = static_cast<std::ptrdiff_t>(s.to_pitch);
    to.plane[0].mask = ZIMG_BUFFER_MAX;
    const zimg_error_code_e result =
        zimg_filter_graph_process(s.graph.get(), &from, &to, s.scratch.get(), nullptr, nullptr, nullptr, nullptr);
    if (result != ZIMG_ERROR_SUCCESS) state::fail();
  }
}

MILLRACE_INLINE const std::uint8_t* resizer::row(int channel, std::size_t y) const noexcept {
  const state& s = *state_;
  return s.to.get() +
         s.to_pitch * (static_cast<std::size_t>(s.geometry.height) * static_cast<std::size_t>(channel) + y);
}

/// Pixels of a row, from the first one that is given on, of values `value(c, v)` of the channels' rows.
template <class T, class Value>
void store_pixels(T* tensor, image_layout layout, std::size_t width, std::size_t height, std::size_t y,
                  std::size_t first, const std::uint8_t* const* channels, bool mirrored, Value value) noexcept {
  for (std::size_t c = 0; c < 3; ++c) {
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

MILLRACE_INLINE pixel_writer::pixel_writer(const image_options& o) : layout_(o.layout), type_(o.type) {
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
    for (std::size_t c = 0; c < 3; ++c) {
      std::memcpy(static_cast<std::uint8_t*>(tensor) + (c * height + y) * width, channels[c], width);
    }
    return;
  }
  // What is left at the end of the tensor's row is looked up.
  const std::size_t first = vectors_ ? store_vectors(tensor, width, height, y, channels, mirrored) : 0;
  const auto store = [&](auto* to, auto value) {
    store_pixels(to, layout_, width, height, y, first, channels, mirrored, value);
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
  for (std::size_t c = 0; c < 3; ++c) {
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
  shared(const image_options& o, const detail::source_makers& f) : writer(o), formats(f), pixels(o.idle_bytes) {}
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
