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

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/jpeg_source.hpp>
#include <millrace/decode/image_format.hpp>
#include <millrace/decode/jpeg_decoder.hpp>

namespace millrace {

struct jpeg_decoder::handle {
  detail::jpeg_source source;
  std::unique_ptr<handle> next;
};

struct jpeg_decoder::pool {
  explicit pool(std::size_t idle_bytes) : pixels(idle_bytes) {}
  pixel_pool pixels;
  std::mutex mutex;
  std::unique_ptr<handle> idle;
};

MILLRACE_INLINE jpeg_decoder::jpeg_decoder(jpeg_options options)
    : options_(options), pool_(std::make_shared<pool>(options.idle_bytes)) {
  if (options.scale != 1 && options.scale != 2 && options.scale != 4 && options.scale != 8) {
    throw configuration_error("a JPEG can be decoded at 1, 1/2, 1/4 or 1/8 of its size");
  }
  if (options.channels != 1 && options.channels != 3) {
    throw configuration_error("a JPEG is decoded to 1 or 3 channels");
  }
}

MILLRACE_INLINE image jpeg_decoder::operator()(const bytes& jpeg, const where& at) const {
  image out;
  decode(jpeg, at, [this, &out](int h, int w, int c) {
    const std::size_t size = static_cast<std::size_t>(h) * static_cast<std::size_t>(w) * static_cast<std::size_t>(c);
    out = image(pool_->pixels.acquire(size), h, w, c);
    return out.pixels.data();
  });
  return out;
}

MILLRACE_INLINE void jpeg_decoder::into(std::span<std::uint8_t> pixels, int height, int width, const bytes& jpeg,
                                        const where& at) const {
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

template <class Place>
void jpeg_decoder::decode(const bytes& jpeg, const where& at, Place&& place) const {
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

MILLRACE_INLINE std::unique_ptr<jpeg_decoder::handle> jpeg_decoder::take() const {
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

MILLRACE_INLINE void jpeg_decoder::give_back(std::unique_ptr<handle> h) const noexcept {
  std::lock_guard lock(pool_->mutex);
  h->next = std::move(pool_->idle);
  pool_->idle = std::move(h);
}

}  // namespace millrace
