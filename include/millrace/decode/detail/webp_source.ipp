// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/image_source.hpp>
#include <millrace/decode/detail/webp_source.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void webp_source::open(const bytes& data, bool) {
  data_ = reinterpret_cast<const std::uint8_t*>(data.data());
  size_ = data.size();
  if (WebPInitDecoderConfig(&config_) == 0) throw decode_error("the installed libwebp is of another version");
  check(WebPGetFeatures(data_, size_, &config_.input), "the WebP's header cannot be read");
  width = config_.input.width;
  height = config_.input.height;
  orientation = orientation_of(data.view());
}

MILLRACE_INLINE void webp_source::begin(int, const pixel_range& wanted, int& first, int& pixels) {
  if (config_.input.has_animation != 0) {
    decode_first_frame();
    first = 0;
    pixels = width;
    row_ = static_cast<std::size_t>(width) * 4;
    next_ = static_cast<std::size_t>(wanted.top);
    return;
  }
  // The smoothing of colours looks at neighbours; and crops begin at even pixels.
  constexpr int beside = 2;
  const int left = std::max(0, wanted.left - beside) / 2 * 2;
  const int top = std::max(0, wanted.top - beside) / 2 * 2;
  first = left;
  pixels = std::min(width, wanted.right + beside) - left;
  const int rows = std::min(height, wanted.bottom + beside) - top;
  config_.options.use_cropping = 1;
  config_.options.crop_left = left;
  config_.options.crop_top = top;
  config_.options.crop_width = pixels;
  config_.options.crop_height = rows;
  row_ = static_cast<std::size_t>(pixels) * 4;
  pixels_.resize(row_ * static_cast<std::size_t>(rows));
  config_.output.colorspace = MODE_RGBA;
  config_.output.is_external_memory = 1;
  config_.output.u.RGBA.rgba = pixels_.data();
  config_.output.u.RGBA.stride = static_cast<int>(row_);
  config_.output.u.RGBA.size = pixels_.size();
  check(WebPDecode(data_, size_, &config_), "the WebP is corrupt");
  decoded_ = pixels_.data();
  next_ = static_cast<std::size_t>(wanted.top - top);
}

/// The frame may be a part of the canvas; the rest is black.
MILLRACE_INLINE void webp_source::decode_first_frame() {
  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0) throw decode_error("the installed libwebp is of another version");
  options.color_mode = MODE_RGBA;
  options.use_threads = 0;
  const WebPData data = {data_, size_};
  animation_.reset(WebPAnimDecoderNew(&data, &options));
  if (animation_ == nullptr) throw decode_error("the WebP is corrupt: the animation is cut or contradicts the format");
  std::uint8_t* canvas = nullptr;
  int shown_until = 0;
  if (WebPAnimDecoderGetNext(animation_.get(), &canvas, &shown_until) == 0) {
    throw decode_error("the WebP is corrupt: the first frame of the animation cannot be decoded");
  }
  decoded_ = canvas;
}

MILLRACE_INLINE void webp_source::check(VP8StatusCode status, const char* what) {
  if (status == VP8_STATUS_OK) return;
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  const char* const reason = status == VP8_STATUS_NOT_ENOUGH_DATA       ? "it ends early"
                             : status == VP8_STATUS_UNSUPPORTED_FEATURE ? "of a kind that libwebp does not know"
                                                                        : "its data contradict the format";
  throw decode_error(std::string(what) + ": " + reason);
}

MILLRACE_INLINE int webp_source::orientation_of(std::string_view file) noexcept {
  const auto byte = [file](std::size_t i) { return std::size_t(static_cast<unsigned char>(file[i])); };
  int in_exif = 0;
  int in_xmp = 0;
  for (std::size_t at = 12; at + 8 <= file.size();) {
    const std::size_t size = byte(at + 4) | byte(at + 5) << 8 | byte(at + 6) << 16 | byte(at + 7) << 24;
    if (size > file.size() - at - 8) break;
    const std::string_view name = file.substr(at, 4);
    const std::string_view body = file.substr(at + 8, size);
    if (name == "EXIF" && in_exif == 0) in_exif = exif_orientation(body);
    if (name == "XMP " && in_xmp == 0) in_xmp = xmp_orientation(body);
    at += 8 + size + size % 2;
  }
  return in_exif != 0 ? in_exif : in_xmp != 0 ? in_xmp : 1;
}

}  // namespace millrace::detail
