// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <jerror.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // before <jpeglib.h>, which needs it
#include <cstring>
#include <new>
#include <string>

#include <jpeglib.h>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/image_source.hpp>

#ifndef LIBJPEG_TURBO_VERSION
#error millrace decodes JPEGs with libjpeg-turbo (Debian: libjpeg-dev), and this is the header of another libjpeg
#endif

namespace millrace::inline MILLRACE_ABI::detail {

/// A JPEG, by libjpeg-turbo. Rows and columns that are not wanted are only entropy-decoded; rows after the last one are
/// not read. A warning of libjpeg's is an error if pixels were lost (corrupt or missing data), unless that is
/// tolerated; if none was, it is an oddity.
class jpeg_source final : public image_source {
 public:
  jpeg_source();
  ~jpeg_source() override { jpeg_destroy_decompress(&state_); }

  MILLRACE_INLINE void open(const bytes& data, bool tolerant) override;

  bool reduces() const noexcept override { return true; }
  bool packs() const noexcept override { return !of_inks(); }

  MILLRACE_INLINE void begin(int denominator, const pixel_range& wanted, int& first, int& pixels) override;

  MILLRACE_INLINE void read_row(std::uint8_t* row) override;

  MILLRACE_INLINE void finish() override;
  void close() noexcept override { jpeg_abort_decompress(&state_); }

 private:
  static constexpr int most_scans = 500;

  static jpeg_source& self(j_common_ptr s) noexcept { return *static_cast<jpeg_source*>(s->client_data); }

  // Whatever may jump is called by a function of its own, which holds nothing that would have to be destroyed.
  bool reads_header(const unsigned char* data, std::size_t size) noexcept;
  bool starts() noexcept {
    if (setjmp(jump_) != 0) return false;
    return jpeg_start_decompress(&state_) != 0;
  }
  bool crops(JDIMENSION& offset, JDIMENSION& taken) noexcept;
  bool skips(JDIMENSION rows) noexcept {
    if (setjmp(jump_) != 0) return false;
    return jpeg_skip_scanlines(&state_, rows) == rows;
  }
  bool reads(std::uint8_t* row) noexcept;

  bool ends() noexcept {
    if (setjmp(jump_) != 0) return false;
    return jpeg_finish_decompress(&state_) != 0;
  }

  void keep_message(j_common_ptr s) noexcept {
    static_assert(sizeof message_ >= JMSG_LENGTH_MAX);
    s->err->format_message(s, message_);
  }
  bool is_plain() const noexcept;
  bool of_inks() const noexcept {
    return state_.jpeg_color_space == JCS_CMYK || state_.jpeg_color_space == JCS_YCCK;
  }
  void warn(j_common_ptr s) noexcept;
  /// True if the present warning reports no lost pixel.
  bool loses_nothing(j_common_ptr s) noexcept;
  bool has_means() const noexcept;
  void read_orientation();
  void refuse_warnings(const char* what) const {
    if (errors_.num_warnings != 0 && !tolerant_) fail(what);
  }
  [[noreturn]] void fail(const char* what) const {
    throw decode_error(std::string(what) + ": " + (message_[0] != 0 ? message_ : "it ends early"));
  }

  static void to_rgb(std::uint8_t* row, std::size_t pixels, bool inverted) noexcept;

  jpeg_decompress_struct state_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf jump_;
  char message_[JMSG_LENGTH_MAX] = {};
  char oddity_[JMSG_LENGTH_MAX] = {};
  bool tolerant_ = false;
  bool cmyk_ = false;
  bool means_late_ = false;  // a scan of details came before the one with the means of the blocks
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/jpeg_source.ipp>
#endif
