// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The model's JPEGs, by libjpeg-turbo alone.

#include <cstddef>
#include <cstdio>

#include <jpeglib.h>
#include <jerror.h>

#include <csetjmp>
#include <cstring>
#include <vector>

#include "tests/nvjpeg_model/nvjpeg_model.hpp"

namespace millrace::nvjpeg_model {

namespace {

struct reader {
  jpeg_decompress_struct state = {};
  jpeg_error_mgr errors = {};
  std::jmp_buf jump;
  bool cut_off = false;  // which nvJPEG 13 decodes as far as there is a file, and reports nothing

  reader() {
    state.err = jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr s) { std::longjmp(static_cast<reader*>(s->client_data)->jump, 1); };
    errors.emit_message = [](j_common_ptr s, int level) {
      if (level >= 0) return;
      ++s->err->num_warnings;
      if (s->err->msg_code == JWRN_JPEG_EOF) static_cast<reader*>(s->client_data)->cut_off = true;
    };
    state.client_data = this;
    jpeg_create_decompress(&state);
  }
  reader(const reader&) = delete;
  reader& operator=(const reader&) = delete;
  ~reader() { jpeg_destroy_decompress(&state); }

  bool opens(const std::uint8_t* file, std::size_t size) {
    if (setjmp(jump) != 0) return false;
    jpeg_mem_src(&state, file, static_cast<unsigned long>(size));
    return jpeg_read_header(&state, TRUE) == JPEG_HEADER_OK;
  }
  bool reads(std::uint8_t* to, std::size_t pitch, std::uint8_t* line) {
    if (setjmp(jump) != 0) return false;
    state.out_color_space = JCS_RGB;
    jpeg_start_decompress(&state);
    while (state.output_scanline < state.output_height) {
      JSAMPROW rows[] = {to == nullptr ? line : to + state.output_scanline * pitch};
      jpeg_read_scanlines(&state, rows, 1);
    }
    jpeg_finish_decompress(&state);
    return errors.num_warnings == 0 || cut_off;
  }
};

}  // namespace

bool read_jpeg(const std::uint8_t* file, std::size_t size, bool whole, head& found, std::uint8_t* to,
               std::size_t pitch) {
  reader r;
  if (!r.opens(file, size)) return false;
  found = head();
  found.channels = r.state.num_components;
  for (int i = 0; i < found.channels && i < 4; ++i) {
    const jpeg_component_info& c = r.state.comp_info[i];
    const auto part = [](JDIMENSION all, int factor, int most) {
      return static_cast<int>((all * static_cast<JDIMENSION>(factor) + static_cast<JDIMENSION>(most) - 1) /
                              static_cast<JDIMENSION>(most));
    };
    found.widths[i] = part(r.state.image_width, c.h_samp_factor, r.state.max_h_samp_factor);
    found.heights[i] = part(r.state.image_height, c.v_samp_factor, r.state.max_v_samp_factor);
  }
  // Of the samplings those that the tests have: 4:4:4 and 4:2:0.
  if (found.channels == 3) found.sampling = r.state.max_h_samp_factor == 1 ? 0 : 2;
  if (found.channels == 1) found.sampling = 6;
  if (!whole) return true;
  std::vector<std::uint8_t> line(static_cast<std::size_t>(found.widths[0]) * 4);
  return r.reads(to, pitch, line.data());
}

void decode(decode_work work) {
  head found;
  if (!read_jpeg(work.file, work.size, true, found, static_cast<std::uint8_t*>(work.to), work.pitch)) {
    std::memset(work.to, 0xee, work.pixel_bytes());  // it was another one at the call
  }
}

}  // namespace millrace::nvjpeg_model
