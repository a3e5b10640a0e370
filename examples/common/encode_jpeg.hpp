// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <jpeglib.h>

/// \file
/// Makes JPEGs. The library only reads them.

namespace examples {

/// See encode_jpeg().
struct jpeg_kind {
  int quality = 90;
  bool subsampled = true;  ///< colours at half the resolution: 4:2:0, else 4:4:4
  bool progressive = false;
  int channels = 3;  ///< 3: red, green and blue; 1: grey; 4: cyan, magenta, yellow and black
  bool ycck = false;  ///< four channels are stored as YCCK
  bool adobe = true;  ///< four channels are marked as those of Adobe's programs are
  int restart_rows = 0;  ///< rows of blocks from one restart marker to the next; 0: none
};

/// A JPEG of `pixels`, row by row, channels innermost. libjpeg's errors end the program.
inline std::string encode_jpeg(const std::vector<std::uint8_t>& pixels, int width, int height, jpeg_kind kind = {}) {
  jpeg_error_mgr errors;
  jpeg_compress_struct state;
  state.err = jpeg_std_error(&errors);
  jpeg_create_compress(&state);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&state, &data, &size);
  state.image_width = static_cast<JDIMENSION>(width);
  state.image_height = static_cast<JDIMENSION>(height);
  state.input_components = kind.channels;
  state.in_color_space = kind.channels == 1 ? JCS_GRAYSCALE : kind.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&state);
  if (kind.ycck) jpeg_set_colorspace(&state, JCS_YCCK);
  if (kind.channels == 4 && !kind.adobe) state.write_Adobe_marker = FALSE;
  jpeg_set_quality(&state, kind.quality, TRUE);
  const int factor = kind.subsampled && kind.channels == 3 ? 2 : 1;
  state.comp_info[0].h_samp_factor = state.comp_info[0].v_samp_factor = factor;
  state.restart_in_rows = kind.restart_rows;
  if (kind.progressive) jpeg_simple_progression(&state);
  jpeg_start_compress(&state, TRUE);
  const auto row = static_cast<std::size_t>(width) * static_cast<std::size_t>(kind.channels);
  while (state.next_scanline < state.image_height) {
    auto* const from = const_cast<JSAMPROW>(pixels.data() + state.next_scanline * row);  // libjpeg only reads it
    JSAMPROW rows[] = {from};
    jpeg_write_scanlines(&state, rows, 1);
  }
  jpeg_finish_compress(&state);
  std::string jpeg(reinterpret_cast<const char*>(data), size);
  jpeg_destroy_compress(&state);
  std::free(data);
  return jpeg;
}

}  // namespace examples
