// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zimg.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/resizer.hpp>

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
  memory from, to, scratch;  // the planes one behind the other
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

}  // namespace millrace::detail
