// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/decode/detail/jpeg_source.hpp>
#include <millrace/decode/image.hpp>
#include <millrace/decode/image_format.hpp>
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
template <class = void>
class basic_jpeg_decoder {
 public:
  explicit basic_jpeg_decoder(jpeg_options options = {})
      : options_(options), pool_(std::make_shared<pool>(options.idle_bytes)) {
    if (options.scale != 1 && options.scale != 2 && options.scale != 4 && options.scale != 8) {
      throw configuration_error("a JPEG can be decoded at 1, 1/2, 1/4 or 1/8 of its size");
    }
    if (options.channels != 1 && options.channels != 3)
      throw configuration_error("a JPEG is decoded to 1 or 3 channels");
  }

  /// The whole image.
  image operator()(const bytes& jpeg, const where& at = where()) const {
    image out;
    decode(jpeg, at, [this, &out](int h, int w, int c) {
      const std::size_t size = static_cast<std::size_t>(h) * static_cast<std::size_t>(w) * static_cast<std::size_t>(c);
      out = image(pool_->pixels.acquire(size), h, w, c);
      return out.pixels.data();
    });
    return out;
  }

  /// Into memory of the caller, a batch's row for example, of exactly height * width * channels bytes.
  void into(std::span<std::uint8_t> pixels, int height, int width, const bytes& jpeg, const where& at = where()) const {
    decode(jpeg, at, [&](int h, int w, int c) {
      if (h != height || w != width ||
          pixels.size() != static_cast<std::size_t>(h) * static_cast<std::size_t>(w) * static_cast<std::size_t>(c)) {
        throw decode_error("the image is " + std::to_string(w) + "x" + std::to_string(h) + ", not " +
                               std::to_string(width) + "x" + std::to_string(height),
                           at);
      }
      return pixels.data();
    });
  }

  const jpeg_options& options() const noexcept { return options_; }

 private:
  // In a chain while it is idle.
  struct handle {
    detail::jpeg_source source;
    std::unique_ptr<handle> next;
  };
  struct pool {
    explicit pool(std::size_t idle_bytes) : pixels(idle_bytes) {}
    pixel_pool pixels;
    std::mutex mutex;
    std::unique_ptr<handle> idle;
  };

  template <class Place>
  void decode(const bytes& jpeg, const where& at, Place&& place) const {
    std::unique_ptr<handle> taken = take();
    detail::jpeg_source& source = taken->source;
    try {
      if (image_format_of(jpeg.view()) != image_format::jpeg) {
        throw decode_error("not a JPEG: it does not begin with the marker ff d8");
      }
      source.open(jpeg, options_.tolerate_corruption);
      if (static_cast<std::uint64_t>(source.width) * static_cast<std::uint64_t>(source.height) > options_.max_pixels) {
        throw decode_error("the JPEG has " + std::to_string(source.width) + "x" + std::to_string(source.height) +
                           " pixels, more than are allowed");
      }
      const int w = (source.width + options_.scale - 1) / options_.scale;
      const int h = (source.height + options_.scale - 1) / options_.scale;
      std::uint8_t* pixels = place(h, w, options_.channels);
      source.channels = options_.channels;
      int first = 0;
      int in_row = 0;
      source.begin(options_.scale, {0, 0, w, h}, first, in_row);
      const std::size_t row = static_cast<std::size_t>(w) * static_cast<std::size_t>(options_.channels);
      for (int y = 0; y < h; ++y, pixels += row) source.read_row(pixels);
      source.finish();
    } catch (error& e) {
      e.add_place(at);
      source.close();
      give_back(std::move(taken));
      throw;
    }
    source.close();
    give_back(std::move(taken));
  }

  std::unique_ptr<handle> take() const {
    {
      std::lock_guard lock(pool_->mutex);
      if (pool_->idle) {
        std::unique_ptr<handle> h = std::move(pool_->idle);
        pool_->idle = std::move(h->next);
        return h;
      }
    }
    return std::make_unique<handle>();
  }
  void give_back(std::unique_ptr<handle> h) const noexcept {
    std::lock_guard lock(pool_->mutex);
    h->next = std::move(pool_->idle);
    pool_->idle = std::move(h);
  }

  jpeg_options options_;
  std::shared_ptr<pool> pool_;
};
using jpeg_decoder = basic_jpeg_decoder<>;

}  // namespace millrace
