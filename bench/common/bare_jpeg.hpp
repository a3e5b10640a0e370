// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

#include <millrace/memory/bytes.hpp>

namespace bench {

/// libjpeg-turbo as one would use it without the library. An error ends the program.
class bare_jpeg {
 public:
  bare_jpeg() {
    state_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&state_);
  }
  bare_jpeg(const bare_jpeg&) = delete;
  bare_jpeg& operator=(const bare_jpeg&) = delete;
  ~bare_jpeg() { jpeg_destroy_decompress(&state_); }

  void open(const millrace::bytes& data) {
    jpeg_mem_src(&state_, reinterpret_cast<const unsigned char*>(data.data()), static_cast<unsigned long>(data.size()));
    jpeg_read_header(&state_, TRUE);
  }
  void start(J_COLOR_SPACE colours) {
    state_.out_color_space = colours;
    jpeg_start_decompress(&state_);
  }
  void read(unsigned char* row) {
    JSAMPROW rows[] = {row};
    jpeg_read_scanlines(&state_, rows, 1);
  }
  void finish() { jpeg_finish_decompress(&state_); }
  void abandon() { jpeg_abort_decompress(&state_); }
  jpeg_decompress_struct& state() noexcept { return state_; }

 private:
  jpeg_error_mgr errors_ = {};
  jpeg_decompress_struct state_ = {};
};

}  // namespace bench
