// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/device/normalise_images.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// Throws unless image `i` lies in its bytes, and its part in it.
MILLRACE_INLINE void check_part(const device_batch& b, std::size_t i, const image_part& p, std::int64_t begin,
                                std::int64_t end, std::int64_t all) {
  const auto wrong = [&](const std::string& reason) {
    const std::span<const origin> from = b.tags<origin>();
    const std::string& key = b.keys()[i];
    return decode_error(reason, from.empty() ? where{std::string(), std::nullopt, key} : from[i].at(key));
  };
  if (begin < 0 || end < begin || end > all) {
    throw wrong("the image's bytes are not among the " + std::to_string(all) + " of the batch");
  }
  if (p.height == 0 && p.width == 0) return;
  if (p.height <= 0 || p.width <= 0 || p.stride / 3 < p.width ||
      (p.height - std::int64_t(1)) * p.stride + std::int64_t(3) * p.width > end - begin) {
    throw wrong("an image of " + std::to_string(p.height) + "x" + std::to_string(p.width) + "x3 with rows of " +
                std::to_string(p.stride) + " bytes is not in its " + std::to_string(end - begin) + " bytes");
  }
  const auto inside = [](float from, float to, std::int32_t n) {
    return from >= 0 && from < to && to <= static_cast<float>(n);
  };
  if (!inside(p.left, p.right, p.width) || !inside(p.top, p.bottom, p.height)) {
    throw wrong("the part of an image of " + std::to_string(p.height) + "x" + std::to_string(p.width) +
                " that is taken is not inside of it");
  }
}

MILLRACE_INLINE pixel_work pixel_work_of(const device_batch& b, std::string_view field, const tensor_view& to,
                                         const normalise_options& options) {
  pixel_work w;
  const auto samples = static_cast<std::int64_t>(b.size());
  const shape& out = to.dims();
  const auto fits = [](std::int64_t n) { return n > 0 && n <= std::numeric_limits<std::int32_t>::max(); };
  if (out.rank() != 4 || out[0] < samples || out[1] != 3 || !fits(out[2]) || !fits(out[3]) ||
      (to.type() != dtype::f16 && to.type() != dtype::bf16 && to.type() != dtype::f32)) {
    throw configuration_error("normalised images of a batch of " + std::to_string(samples) + " are " +
                              std::to_string(samples) + "x3x height x width of f16, bf16 or f32, and the place for " +
                              "them is " + name_of(to.type()) + " " + out.text());
  }
  w.to = to.data();
  w.images = samples;
  w.height = static_cast<int>(out[2]);
  w.width = static_cast<int>(out[3]);
  for (std::size_t c = 0; c < 3; ++c) {
    if (!(options.std[c] > 0)) throw configuration_error("the std of an image's channel is a number above 0");
    w.mean[c] = options.mean[c];
    w.std[c] = options.std[c];
  }

  const std::string name(field);
  const std::size_t at = b.layout().find(name);
  const batch_field& kind = b.layout().fields()[at];
  const shape& dims = kind.dims();
  const bool one_size = kind.has_rows() && dims.rank() == 3 && dims[2] == 3 && fits(dims[0]) && fits(dims[1] * 3);
  if (kind.type() != dtype::u8 || !(one_size || (!kind.has_rows() && dims.rank() == 1))) {
    throw configuration_error("images to be normalised are u8, height x width x 3 or ragged, and the batch has " +
                              kind.text());
  }
  const tensor_view pixels = b.field(at);
  w.pixels = pixels.as<const std::uint8_t>();
  w.bytes = static_cast<std::int64_t>(pixels.bytes());
  if (one_size) {
    w.whole.height = static_cast<std::int32_t>(dims[0]);
    w.whole.width = static_cast<std::int32_t>(dims[1]);
    w.whole.stride = 3 * w.whole.width;
    w.whole.right = static_cast<float>(dims[1]);
    w.whole.bottom = static_cast<float>(dims[0]);
    return w;
  }
  const std::size_t offsets_at = b.layout().find(name + "_offsets");
  const std::size_t parts_at = b.layout().find(name + "_parts");
  const tensor_view offsets = b.host_field(offsets_at);
  const tensor_view parts = b.host_field(parts_at);
  if (offsets.elements() < b.size() + 1 || parts.type() != dtype::u8 ||
      parts.dims() != shape{samples, static_cast<std::int64_t>(sizeof(image_part))}) {
    throw configuration_error("the images of " + name + " have " + b.layout().fields()[parts_at].text() + " and " +
                              b.layout().fields()[offsets_at].text() + ", which are not what write_image() makes");
  }
  const auto* const begin = offsets.as<const std::int64_t>();
  for (std::size_t i = 0; i < b.size(); ++i) {
    image_part p;
    std::memcpy(&p, parts.as<const std::uint8_t>() + i * sizeof p, sizeof p);
    check_part(b, i, p, begin[i], begin[i + 1], w.bytes);
  }
  w.offsets = b.field(offsets_at).as<const std::int64_t>();
  w.parts = static_cast<const image_part*>(b.field(parts_at).data());
  return w;
}

template <dtype Type>
void write_pixels(const pixel_work& w) noexcept {
  for (std::int64_t i = 0; i < w.images; ++i) {
    for (int y = 0; y < w.height; ++y) {
      for (int x = 0; x < w.width; ++x) write_pixel<Type>(w, i, y, x);
    }
  }
}

}  // namespace detail

MILLRACE_INLINE void normalise_images(const device_batch& b, std::string_view field, const tensor_view& to,
                                      const normalise_options& options) {
  if (b.device() != "host") {
    throw configuration_error("a batch on " + b.device() +
                              " is normalised there, on a stream: see cuda/normalise_images.hpp");
  }
  const detail::pixel_work w = detail::pixel_work_of(b, field, to, options);
  if (to.type() == dtype::f32) return detail::write_pixels<dtype::f32>(w);
  if (to.type() == dtype::f16) return detail::write_pixels<dtype::f16>(w);
  detail::write_pixels<dtype::bf16>(w);
}

}  // namespace millrace
