// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/image_source.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A WebP, by libwebp: with loss or without, its alpha channel left out. Colours of pixels that are not wanted are not
/// made. An animation gives its first frame, as its canvas shows it.
class webp_source final : public image_source {
 public:
  MILLRACE_INLINE void open(const bytes& data, bool) override;

  MILLRACE_INLINE void begin(int, const pixel_range& wanted, int& first, int& pixels) override;

  void read_row(std::uint8_t* row) override { std::memcpy(row, decoded_ + row_ * next_++, row_); }
  void finish() override {}
  void close() noexcept override { animation_.reset(); }

 private:
  struct freed {
    void operator()(WebPAnimDecoder* a) const noexcept { WebPAnimDecoderDelete(a); }
  };

  static void check(VP8StatusCode status, const char* what);
  void decode_first_frame();

  /// The orientation of the chunk "EXIF", wherever it stands (RFC 9649, section 2.7), else of "XMP ".
  static int orientation_of(std::string_view file) noexcept;

  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  WebPDecoderConfig config_ = {};
  std::vector<std::uint8_t> pixels_;
  std::unique_ptr<WebPAnimDecoder, freed> animation_;
  const std::uint8_t* decoded_ = nullptr;  // in one of both
  std::size_t row_ = 0;
  std::size_t next_ = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/webp_source.ipp>
#endif
