// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/exif.hpp>
#include <millrace/decode/detail/image_source.hpp>
#include <millrace/decode/detail/jpeg_source.hpp>

namespace millrace::detail {

MILLRACE_INLINE jpeg_source::jpeg_source() {
  state_.err = jpeg_std_error(&errors_);
  errors_.error_exit = [](j_common_ptr s) {
    self(s).keep_message(s);
    std::longjmp(self(s).jump_, 1);
  };
  errors_.emit_message = [](j_common_ptr s, int level) {
    if (level >= 0) return;
    if (s->err->num_warnings++ == 0) self(s).keep_message(s);
  };
  progress_.progress_monitor = [](j_common_ptr s) {
    // Each scan of a progressive JPEG may be a few bytes that cost a pass over the whole image.
    if (s->is_decompressor != 0 && reinterpret_cast<j_decompress_ptr>(s)->input_scan_number > most_scans) {
      std::snprintf(self(s).message_, sizeof self(s).message_, "more than %d scans", most_scans);
      std::longjmp(self(s).jump_, 1);
    }
  };
  state_.client_data = this;
  if (setjmp(jump_) != 0) throw std::bad_alloc();
  jpeg_create_decompress(&state_);
  state_.progress = &progress_;
  jpeg_save_markers(&state_, JPEG_APP0 + 1, 0xffff);
}

MILLRACE_INLINE void jpeg_source::open(const bytes& data, bool tolerant) {
  tolerant_ = tolerant;
  errors_.num_warnings = 0;
  message_[0] = 0;
  if (!reads_header(reinterpret_cast<const unsigned char*>(data.data()), data.size())) {
    fail("the JPEG's header cannot be read");
  }
  width = static_cast<int>(state_.image_width);
  height = static_cast<int>(state_.image_height);
  plain_jpeg = is_plain();
  orientation = 1;
  for (jpeg_saved_marker_ptr m = state_.marker_list; m != nullptr; m = m->next) {
    static constexpr char exif[] = {'E', 'x', 'i', 'f', 0, 0};
    if (m->data_length > sizeof exif && std::memcmp(m->data, exif, sizeof exif) == 0) {
      orientation = exif_orientation(m->data + sizeof exif, m->data_length - sizeof exif);
      break;
    }
  }
  refuse_warnings("the JPEG's header cannot be read");
}

MILLRACE_INLINE void jpeg_source::begin(int denominator, const pixel_range& wanted, int& first, int& pixels) {
  // libjpeg has no way from CMYK to RGB.
  cmyk_ = channels == 4 && (state_.jpeg_color_space == JCS_CMYK || state_.jpeg_color_space == JCS_YCCK);
  state_.out_color_space = cmyk_ ? JCS_CMYK : channels == 4 ? JCS_EXT_RGBX : channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  state_.scale_num = 1;
  state_.scale_denom = static_cast<unsigned>(denominator);
  if (!starts()) fail("the JPEG is corrupt");
  // What the smoothing of colours makes of a pixel depends on its neighbours.
  constexpr int beside = 2;
  const auto all = static_cast<int>(state_.output_width);
  auto offset = static_cast<JDIMENSION>(std::max(0, wanted.left - beside));
  auto taken = static_cast<JDIMENSION>(std::min(all, wanted.right + beside)) - offset;
  if (taken == state_.output_width) {
    first = 0;
  } else {
    if (!crops(offset, taken)) fail("the JPEG is corrupt");
    first = static_cast<int>(offset);
  }
  pixels = static_cast<int>(state_.output_width);
  if (wanted.top > 0 && !skips(static_cast<JDIMENSION>(wanted.top))) fail("the JPEG is corrupt");
  refuse_warnings("the JPEG is corrupt");
}

MILLRACE_INLINE void jpeg_source::read_row(std::uint8_t* row) {
  if (!reads(row)) fail("the JPEG is corrupt");
  refuse_warnings("the JPEG is corrupt");
  if (cmyk_) to_rgb(row, state_.output_width, state_.saw_Adobe_marker != 0);
}

MILLRACE_INLINE void jpeg_source::finish() {
  if (state_.output_scanline < state_.output_height) return;
  if (!ends()) fail("the JPEG is corrupt");
  refuse_warnings("the JPEG is corrupt");
}

MILLRACE_INLINE bool jpeg_source::is_plain() const noexcept {
  if (state_.jpeg_color_space != JCS_YCbCr || state_.num_components != 3 || state_.data_precision != 8 ||
      state_.arith_code != 0) {
    return false;
  }
  const jpeg_component_info* const c = state_.comp_info;
  for (int i = 1; i < 3; ++i) {
    if (c[i].h_samp_factor != 1 || c[i].v_samp_factor != 1) return false;
  }
  // 4:4:4, 4:2:2, 4:2:0, 4:4:0 and 4:1:1.
  return c[0].v_samp_factor == 1 ? c[0].h_samp_factor == 1 || c[0].h_samp_factor == 2 || c[0].h_samp_factor == 4
                                 : c[0].v_samp_factor == 2 && c[0].h_samp_factor <= 2;
}

MILLRACE_INLINE bool jpeg_source::reads_header(const unsigned char* data, std::size_t size) noexcept {
  if (setjmp(jump_) != 0) return false;
  jpeg_mem_src(&state_, data, static_cast<unsigned long>(size));
  return jpeg_read_header(&state_, TRUE) == JPEG_HEADER_OK;
}

MILLRACE_INLINE bool jpeg_source::crops(JDIMENSION& offset, JDIMENSION& taken) noexcept {
  if (setjmp(jump_) != 0) return false;
  jpeg_crop_scanline(&state_, &offset, &taken);
  return true;
}

MILLRACE_INLINE bool jpeg_source::reads(std::uint8_t* row) noexcept {
  if (setjmp(jump_) != 0) return false;
  JSAMPROW rows[] = {row};
  return jpeg_read_scanlines(&state_, rows, 1) == 1;
}

MILLRACE_INLINE void jpeg_source::to_rgb(std::uint8_t* row, std::size_t pixels, bool inverted) noexcept {
  const auto product = [](unsigned a, unsigned b) {
    const unsigned t = a * b + 128;
    return static_cast<std::uint8_t>((t + (t >> 8)) >> 8);  // a * b / 255, rounded
  };
  for (std::uint8_t* p = row; p != row + pixels * 4; p += 4) {
    const unsigned turned = inverted ? 0 : 255;  // Adobe's programs store how much light is left
    const unsigned light = p[3] ^ turned;
    for (int c = 0; c < 3; ++c) p[c] = product(p[c] ^ turned, light);
  }
}

}  // namespace millrace::detail
