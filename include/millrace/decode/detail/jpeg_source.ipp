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
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/image_source.hpp>
#include <millrace/decode/detail/jpeg_source.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE jpeg_source::jpeg_source() {
  state_.err = jpeg_std_error(&errors_);
  errors_.error_exit = [](j_common_ptr s) {
    self(s).keep_message(s);
    std::longjmp(self(s).jump_, 1);
  };
  errors_.emit_message = [](j_common_ptr s, int level) {
    if (level < 0) self(s).warn(s);
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
  oddity = oddity_kind = nullptr;
  means_late_ = packed = false;
  if (!reads_header(reinterpret_cast<const unsigned char*>(data.data()), data.size())) {
    fail("the JPEG's header cannot be read");
  }
  width = static_cast<int>(state_.image_width);
  height = static_cast<int>(state_.image_height);
  plain_jpeg = is_plain() && oddity == nullptr;
  read_orientation();
  refuse_warnings("the JPEG's header cannot be read");
}

MILLRACE_INLINE void jpeg_source::warn(j_common_ptr s) noexcept {
  if (!loses_nothing(s)) {
    if (errors_.num_warnings++ == 0) keep_message(s);
  } else if (oddity == nullptr) {
    errors_.format_message(s, oddity_);
    oddity = oddity_;
    oddity_kind = errors_.jpeg_message_table[errors_.msg_code];
  }
}

MILLRACE_INLINE bool jpeg_source::loses_nothing(j_common_ptr s) noexcept {
  switch (errors_.msg_code) {
    case JWRN_ADOBE_XFORM:      // a code of Adobe's that there is not: its default is taken
    case JWRN_JFIF_MAJOR:       // a JFIF of the future
    case JWRN_EXTRANEOUS_DATA:  // bytes before a marker that all blocks before it could do without
    case JWRN_NOT_SEQUENTIAL:   // fields that a sequential JPEG has no use for
      return true;
    case JWRN_BOGUS_PROGRESSION: {
      // Coefficients that are sent anew, from their first bit on, lack nothing; bits of which earlier ones are missing
      // do. begin() looks whether means that were not there yet have come.
      const auto& d = *reinterpret_cast<j_decompress_ptr>(s);
      if (errors_.msg_parm.i[1] == 0 && d.Ss != 0) {
        means_late_ = true;
        return true;
      }
      return d.Ah == 0;
    }
    default:
      return false;  // missing, cut or contradictory data, and warnings of later versions
  }
}

/// For a progressive JPEG that was read to its end: true if it has the means of all components.
MILLRACE_INLINE bool jpeg_source::has_means() const noexcept {
  for (int c = 0; state_.coef_bits != nullptr && c < state_.num_components; ++c) {
    if (state_.coef_bits[c][0] < 0) return false;
  }
  return true;
}

MILLRACE_INLINE void jpeg_source::read_orientation() {
  constexpr std::string_view exif_begins("Exif\0\0", 6);
  constexpr std::string_view xmp_begins("http://ns.adobe.com/xap/1.0/\0", 29);
  std::string_view exif;
  std::string_view xmp;
  std::string joined;  // EXIF of more than 64 KB goes on in the next segment
  for (jpeg_saved_marker_ptr m = state_.marker_list; m != nullptr; m = m->next) {
    const std::string_view segment(reinterpret_cast<const char*>(m->data), m->data_length);
    if (segment.starts_with(xmp_begins)) xmp = segment.substr(xmp_begins.size());
    if (!segment.starts_with(exif_begins)) continue;
    const std::string_view body = segment.substr(exif_begins.size());
    if (!exif.empty()) {
      if (joined.empty()) joined = exif;
      joined += body;
    }
    exif = joined.empty() ? body : std::string_view(joined);
  }
  orientation = exif_orientation(exif);
  if (orientation == 0) orientation = xmp_orientation(xmp);
  if (orientation == 0) orientation = 1;
}

MILLRACE_INLINE void jpeg_source::begin(int denominator, const pixel_range& wanted, int& first, int& pixels) {
  // libjpeg has no way from CMYK to RGB.
  cmyk_ = of_inks();
  state_.out_color_space = cmyk_ ? JCS_CMYK : packed ? JCS_RGB : JCS_EXT_RGBX;
  state_.scale_num = 1;
  state_.scale_denom = static_cast<unsigned>(denominator);
  if (!starts()) fail("the JPEG is corrupt");
  if (means_late_ && !tolerant_ && !has_means()) {
    throw decode_error("the JPEG is corrupt: the scan with the means of its blocks is missing");
  }
  // A pixel whose colours are smoothed depends on its neighbours.
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
