// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/exif.hpp>
#include <millrace/decode/detail/image_source.hpp>
#include <millrace/decode/detail/png_source.hpp>

namespace millrace::detail {

MILLRACE_INLINE void png_source::open(const bytes& data, bool) {
  state_ = spng_ctx_new(0);
  if (state_ == nullptr) throw std::bad_alloc();
  // Comments and profiles, which nobody reads.
  check(spng_set_chunk_limits(state_, 1 << 26, 1 << 26), header);
  check(spng_set_png_buffer(state_, data.data(), data.size()), header);
  spng_ihdr head;
  check(spng_get_ihdr(state_, &head), header);
  width = static_cast<int>(head.width);
  height = static_cast<int>(head.height);
  interlaced_ = head.interlace_method != 0;
  orientation = 1;
  spng_exif exif;
  if (spng_get_exif(state_, &exif) == 0) {
    orientation = exif_orientation(reinterpret_cast<const std::uint8_t*>(exif.data), exif.length);
  }
}

MILLRACE_INLINE void png_source::begin(int, const pixel_range& wanted, int& first, int& pixels) {
  first = 0;
  pixels = width;
  row_ = static_cast<std::size_t>(width) * 4;
  if (interlaced_) {
    whole_.resize(row_ * static_cast<std::size_t>(height));
    check(spng_decode_image(state_, whole_.data(), whole_.size(), SPNG_FMT_RGBA8, 0), body);
    next_ = static_cast<std::size_t>(wanted.top);
    return;
  }
  check(spng_decode_image(state_, nullptr, 0, SPNG_FMT_RGBA8, SPNG_DECODE_PROGRESSIVE), body);
  whole_.resize(row_);
  for (int y = 0; y < wanted.top; ++y) read_row(whole_.data());
}

MILLRACE_INLINE void png_source::read_row(std::uint8_t* row) {
  if (interlaced_) {
    std::memcpy(row, whole_.data() + row_ * next_++, row_);
    return;
  }
  const int result = spng_decode_row(state_, row, row_);
  if (result != SPNG_EOI) check(result, body);  // the last row
}

}  // namespace millrace::detail
