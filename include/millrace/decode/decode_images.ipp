// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/decode/decode_images.hpp>
#include <millrace/decode/image.hpp>
#include <millrace/decode/image_decoder.ipp>
#include <millrace/decode/parse_label.hpp>
#include <millrace/decode/pixels.hpp>
#include <millrace/flow/failure_policy.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

MILLRACE_INLINE MILLRACE_NOINLINE void say_several_images(const sample& s, const field& taken) {
  std::string images;
  for (const field& f : s.fields) {
    if (image_format_of(f.data.view()) != image_format::unknown) images += (images.empty() ? "" : ", ") + f.extension;
  }
  say_first("several images",
            "several fields of the sample are images (" + images + "): the first in the archive, " + taken.extension +
                ", is taken here and in samples alike; image_options::field names another",
            s.from.at(s.key));
}

/// The options with which an image is decoded for a function; `options` themselves without one.
MILLRACE_INLINE image_options decoded_as(const image_options& options, const image_function* f) {
  if (options.one_hot < 0) throw configuration_error("image_options::one_hot is a number of classes");
  image_options o = options;
  if (f == nullptr) return o;
  if (options.channels == image_channels::class_numbers) {
    throw configuration_error("class numbers are not values that a function of decode_images() could change");
  }
  static_cast<void>(pixel_writer(options));  // it checks type, mean and std
  o.layout = image_layout::chw;
  o.type = dtype::f32;
  o.mean = image_options().mean;
  o.std = image_options().std;
  return o;
}

MILLRACE_INLINE bool is_stored_in_place(const image_options& o) noexcept {
  return o.type == dtype::f32 && o.layout == image_layout::chw;
}

/// Normalises `chw` where it is, and stores it as the options say.
MILLRACE_INLINE void store_image(const pixels<float>& chw, void* tensor, const image_options& o) noexcept {
  const std::size_t n = chw.area();
  const auto channels = static_cast<std::size_t>(chw.channels);
  const bool inner = o.layout == image_layout::hwc;
  const std::size_t step = inner ? channels : 1;
  for (std::size_t c = 0; c < channels; ++c) {
    float* const values = chw.channel(static_cast<int>(c));
    const std::size_t first = inner ? c : c * n;
    if (o.type == dtype::u8) {
      auto* const to = static_cast<std::uint8_t*>(tensor) + first;
      by_fours({values}, {values}, n, [](const floats4* in, floats4* out) {
        const floats4 v = in[0] * 255.0F;
        const floats4 above = v > 0.0F ? v : floats4{};  // so is no number at all
        out[0] = (above < 255.0F ? above : 255.0F) + 0.5F;
      });
      for (std::size_t i = 0; i < n; ++i) to[i * step] = static_cast<std::uint8_t>(values[i]);
      continue;
    }
    const float mean = o.mean[c];
    const float std = o.std[c];
    if (mean != 0 || std != 1) {
      by_fours({values}, {values}, n, [mean, std](const floats4* in, floats4* out) { out[0] = (in[0] - mean) / std; });
    }
    if (o.type == dtype::f32) {
      if (!inner) continue;
      auto* const to = static_cast<float*>(tensor) + first;
      for (std::size_t i = 0; i < n; ++i) to[i * step] = values[i];
      continue;
    }
    auto* const to = static_cast<std::uint16_t*>(tensor) + first;
    std::size_t i = 0;
    const auto store = o.type == dtype::f16 ? &store_halves<dtype::f16> : &store_halves<dtype::bf16>;
    if (!inner) i = store(to, values, n);
    for (; i < n; ++i) to[i * step] = o.type == dtype::f16 ? to_f16(values[i]) : to_bf16(values[i]);
  }
}

}  // namespace detail

MILLRACE_INLINE image_row_writer::image_row_writer(const image_options& options, const detail::source_makers& formats,
                                                   std::shared_ptr<const detail::image_function> f)
    : decoder_(detail::decoded_as(options, f.get()), formats), f_(std::move(f)) {
  if (!options.mask.empty()) {
    image_options o = options;
    o.channels = image_channels::class_numbers;
    o.type = dtype::u8;
    o.mean = image_options().mean;
    o.std = image_options().std;
    mask_.emplace(o, formats);
  } else if (f_ != nullptr && f_->needs_mask) {
    throw configuration_error("a function of images and masks, and image_options::mask names no field");
  } else if (options.classes != 0 && options.channels != image_channels::class_numbers) {
    throw configuration_error("image_options::classes is for masks, and .mask names no field");
  }
}

MILLRACE_INLINE image_geometry image_row_writer::operator()(const sample& s, const batch_row& row) const {
  const image_options& o = decoder_.options();
  const bool draws = o.crop.random() || o.flip > 0 || f_ != nullptr;
  sample_rng numbers = draws ? s.random(purpose::augment) : sample_rng(0, 0, 0, 0, 0);
  tensor_view place = row.field(0);
  pixel_buffer scratch;
  if (f_ != nullptr && !detail::is_stored_in_place(f_->options)) {
    scratch = f_->scratch.acquire(place.elements() * sizeof(float));
    place = tensor_view(scratch.data(), dtype::f32, decoder_.dims());
  }
  const image_geometry g = decoder_.into(place, image_of(s), numbers, s.from.at(s.key));
  pixels<std::uint8_t> mask(nullptr, 1, o.height, o.width);
  if (mask_) {
    const tensor_view classes = row.field("mask");
    const std::string member = s.key + "." + std::string(std::string_view(o.mask));
    mask_->into(classes, s[o.mask], g, s.from.at(member));
    mask.data = classes.as<std::uint8_t>();
  }
  if (f_ != nullptr) {
    const shape dims = decoder_.dims();
    const pixels<float> chw(static_cast<float*>(place.data()), static_cast<int>(dims[0]), o.height, o.width);
    try {
      f_->call(chw, mask, numbers);
    } catch (...) {  // of the program's function: it gets the sample's place
      detail::item_place of_sample;
      of_sample.note(s.from, s.key);
      std::rethrow_exception(of_sample.completed());
    }
    detail::store_image(chw, row.field(0).data(), f_->options);
  }
  if (!o.label.empty()) {
    const std::int64_t label = parse_label(s[o.label], s.from.at(s.key));
    if (o.one_hot == 0) {
      row.set("label", label);
    } else if (label < 0 || label >= o.one_hot) {
      throw decode_error("the class number " + std::to_string(label) + " is none of " + std::to_string(o.one_hot),
                         s.from.at(s.key));
    } else {
      const auto values = row.values<float>("label");
      for (float& v : values) v = 0;
      values[static_cast<std::size_t>(label)] = 1;
    }
  }
  row.key(s.key);
  if (s.from) row.tag(s.from);
  return g;
}

MILLRACE_INLINE batch_layout image_row_writer::layout(std::size_t samples) const {
  std::vector<batch_field> fields;
  const image_options& o = options();
  shape dims = decoder_.dims();
  if (f_ != nullptr && o.layout == image_layout::hwc) dims = shape{dims[1], dims[2], dims[0]};
  fields.emplace_back("image", o.type, dims);
  if (!o.label.empty() && o.one_hot == 0) fields.emplace_back("label", dtype::i64);
  if (!o.label.empty() && o.one_hot != 0) fields.emplace_back("label", dtype::f32, shape{o.one_hot});
  if (mask_) fields.emplace_back("mask", mask_->options().type, mask_->dims());
  return batch_layout(samples, std::move(fields));
}

MILLRACE_INLINE const bytes& image_row_writer::image_of(const sample& s) const {
  const std::string_view name = decoder_.options().field;
  if (!name.empty()) return s[name];
  const bytes* const mask = mask_ ? s.find(decoder_.options().mask) : nullptr;
  const field* taken = nullptr;
  for (const field& f : s.fields) {
    if (&f.data == mask || image_format_of(f.data.view()) == image_format::unknown) continue;
    if (MILLRACE_UNLIKELY(taken != nullptr)) {
      detail::say_several_images(s, *taken);
      break;
    }
    taken = &f;
  }
  if (MILLRACE_LIKELY(taken != nullptr)) return taken->data;
  std::string has;
  for (const field& f : s.fields) {
    has += (has.empty() ? "" : ", ") + f.extension;
    if (const std::string_view other = other_image_format(f.data.view()); !other.empty()) {
      has += ", which is " + std::string(other);
    }
  }
  throw decode_error("no field of the sample is a JPEG, PNG or WebP (it has: " + has + ")", s.from.at(s.key));
}

MILLRACE_COROUTINE_BODY stream<encoded_image> decode_images_stage::operator()(async_generator<sample> source) && {
  return stream<encoded_image>(detail::encoded_samples(std::move(source), std::move(how_))).named("decode_images");
}

MILLRACE_COROUTINE_BODY stream<host_batch> batch_rows(async_generator<encoded_image>&& source, std::size_t samples,
                                                      const batch_options& options) {
  return detail::written_batches<encoded_image>(std::move(source), samples, options);
}

}  // namespace millrace::inline MILLRACE_ABI
