// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <millrace/base/error.hpp>
#include <millrace/decode/image.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/pixel_pool.hpp>

namespace millrace {

/// How JPEGs are decoded.
struct jpeg_options {
  /// 1, 2, 4 or 8: decodes at 1/scale of the size in the DCT domain (ceil(size / scale) pixels), cheaper than resizing.
  int scale = 1;
  /// 3: RGB, 1: grey.
  int channels = 3;
  /// Larger images are refused before memory is allocated for them.
  std::uint64_t max_pixels = std::uint64_t(1) << 28;
  /// Accepts images with corrupt or missing data, as libjpeg does with a warning; else they are an error.
  bool tolerate_corruption = false;
  /// Memory of images that are gone is kept for the next ones, up to so many bytes, by a decoder and its copies
  /// together.
  std::size_t idle_bytes = pixel_pool::default_idle_bytes;
};

/// Decodes JPEGs with libjpeg-turbo, whole and as they are stored; image_decoder crops, resizes and turns upright.
/// Thread-safe: calls on several threads use decoders of their own, kept for reuse.
/// Copies share them, and the memory of the images (pixel_pool), which may outlive them all. Errors are decode_error,
/// thrown before any pixel is handed on: not a JPEG, cut short, corrupt, too large, or a kind that libjpeg-turbo cannot
/// decode to 8 bits. They name the place `at`; in a stage, without one, that of the stage's item.
class jpeg_decoder {
 public:
  /// Throws configuration_error for a scale or a number of channels that there is not.
  explicit jpeg_decoder(jpeg_options options = {});

  /// The whole image.
  image operator()(const bytes& jpeg, const where& at = where()) const;

  /// Into memory of the caller, a batch's row for example, of exactly height * width * channels bytes.
  void into(std::span<std::uint8_t> pixels, int height, int width, const bytes& jpeg, const where& at = where()) const;

  const jpeg_options& options() const noexcept { return options_; }

 private:
  // In a chain while it is idle.
  struct handle;
  struct pool;

  /// `place(height, width, channels)` gives the memory for the pixels.
  template <class Place>
  void decode(const bytes& jpeg, const where& at, Place&& place) const;

  std::unique_ptr<handle> take() const;
  void give_back(std::unique_ptr<handle> h) const noexcept;

  jpeg_options options_;
  std::shared_ptr<pool> pool_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/impl/jpeg_decoder.ipp>
#endif
