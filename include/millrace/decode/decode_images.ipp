// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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
#include <millrace/decode/parse_label.hpp>

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

}  // namespace detail

MILLRACE_INLINE image_row_writer::image_row_writer(const image_options& options, const detail::source_makers& formats)
    : decoder_(options, formats) {
  if (!options.mask.empty()) {
    image_options o = options;
    o.channels = image_channels::class_numbers;
    o.type = dtype::u8;
    o.mean = image_options().mean;
    o.std = image_options().std;
    mask_.emplace(o, formats);
  } else if (options.classes != 0 && options.channels != image_channels::class_numbers) {
    throw configuration_error("image_options::classes is for masks, and .mask names no field");
  }
}

MILLRACE_INLINE void image_row_writer::operator()(const sample& s, const batch_row& row) const {
  const image_options& o = decoder_.options();
  const bool draws = o.crop.random() || o.flip > 0;
  sample_rng numbers = draws ? s.random(purpose::augment) : sample_rng(0, 0, 0, 0, 0);
  const image_geometry g = decoder_.into(row.field(0), image_of(s), numbers, s.from.at(s.key));
  if (mask_) {
    const std::string member = s.key + "." + std::string(std::string_view(o.mask));
    mask_->into(row.field("mask"), s[o.mask], g, s.from.at(member));
  }
  if (!o.label.empty()) row.set("label", parse_label(s[o.label], s.from.at(s.key)));
  row.key(s.key);
  if (s.from) row.tag(s.from);
}

MILLRACE_INLINE batch_layout image_row_writer::layout(std::size_t samples) const {
  std::vector<batch_field> fields;
  fields.emplace_back("image", decoder_.options().type, decoder_.dims());
  if (!decoder_.options().label.empty()) fields.emplace_back("label", dtype::i64);
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

namespace detail {

MILLRACE_COROUTINE_BODY async_generator<encoded_image> images_of(async_generator<sample> source,
                                                                 std::shared_ptr<const image_row_writer> how) {
  for (;;) {
    std::optional<sample> s = co_await source.next();
    if (!s) co_return;
    encoded_image item(std::move(*s), how);
    s.reset();
    co_yield give(item);
  }
}

}  // namespace detail

MILLRACE_COROUTINE_BODY stream<encoded_image> decode_images_stage::operator()(async_generator<sample> source) && {
  return stream<encoded_image>(detail::images_of(std::move(source), std::move(how_))).named("decode_images");
}

MILLRACE_COROUTINE_BODY stream<host_batch> batch_rows(async_generator<encoded_image>&& source, std::size_t samples,
                                                      const batch_options& options) {
  return detail::written_batches<encoded_image>(std::move(source), samples, options);
}

}  // namespace millrace
