// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/decode/image_decoder.hpp>
#include <millrace/decode/parse_label.hpp>
#include <millrace/device/batch_rows.hpp>
#include <millrace/flow/purpose.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace {

/// Writes a sample's image, and its class number if it is to have one, into a row of a batch: what is done for each image
/// of decode_images(), and a function for fill_batches(), alone or as a part of one's own. Copies share memory.
///
/// The row has the fields of layout(), beginning with them. Thread-safe. Errors: decode_error, for a sample without an
/// image or a label, and those of image_decoder.
template <class Formats = detail::linked_formats>
class basic_image_row_writer {
 public:
  explicit basic_image_row_writer(const image_options& options) : decoder_(options) {}

  void operator()(const sample& s, const batch_row& row) const {
    const image_options& o = decoder_.options();
    const bool draws = o.crop.random() || o.flip > 0;
    sample_rng numbers = draws ? s.random(purpose::augment) : sample_rng(0, 0, 0, 0, 0);
    decoder_.into(row.field(0), image_of(s), numbers, s.from.at(s.key));
    if (!o.label.empty()) row.set("label", parse_label(s[o.label], s.from.at(s.key)));
    row.key(s.key);
    if (s.from) row.tag(s.from);
  }

  /// Of batches of up to `samples`: "image", and "label" (i64) where image_options::label names a field.
  batch_layout layout(std::size_t samples) const {
    std::vector<batch_field> fields;
    fields.emplace_back("image", decoder_.options().type, decoder_.dims());
    if (!decoder_.options().label.empty()) fields.emplace_back("label", dtype::i64);
    return batch_layout(samples, std::move(fields));
  }

 private:
  const bytes& image_of(const sample& s) const {
    const std::string_view name = decoder_.options().field;
    if (!name.empty()) return s[name];
    for (const field& f : s.fields) {
      if (image_format_of(f.data.view()) != image_format::unknown) return f.data;
    }
    std::string has;
    for (const field& f : s.fields) has += (has.empty() ? "" : ", ") + f.extension;
    throw decode_error("no field of the sample is a JPEG, PNG or WebP (it has: " + has + ")", s.from.at(s.key));
  }

  basic_image_decoder<Formats> decoder_;
};
using image_row_writer = basic_image_row_writer<>;

/// A sample whose image is decoded when it is written into a row of a batch: what decode_images() makes. Until then it
/// holds the compressed image; shuffle() and buffer() keep many of them. A row_item.
template <class Formats = detail::linked_formats>
class basic_encoded_image {
 public:
  basic_encoded_image(sample s, std::shared_ptr<const basic_image_row_writer<Formats>> how) noexcept
      : encoded(std::move(s)), how_(std::move(how)) {}

  sample encoded;

  batch_layout layout(std::size_t samples) const { return how_->layout(samples); }
  void write_to(const batch_row& row) const { (*how_)(encoded, row); }

  friend const sample& place_of(const basic_encoded_image& i) noexcept { return i.encoded; }
  friend epoch_mark mark_of(const basic_encoded_image& i) noexcept { return i.encoded.mark; }
  friend std::size_t byte_size(const basic_encoded_image& i) noexcept { return byte_size(i.encoded); }
  friend const bytes* slice_of(const basic_encoded_image& i) noexcept { return slice_of(i.encoded); }
  friend basic_encoded_image compact(basic_encoded_image i) {
    return basic_encoded_image(compact(std::move(i.encoded)), std::move(i.how_));
  }

 private:
  std::shared_ptr<const basic_image_row_writer<Formats>> how_;
};
using encoded_image = basic_encoded_image<>;

namespace detail {
template <class Formats>
async_generator<basic_encoded_image<Formats>> images_of(async_generator<sample> source,
                                                        std::shared_ptr<const basic_image_row_writer<Formats>> how) {
  for (;;) {
    std::optional<sample> s = co_await source.next();
    if (!s) co_return;
    basic_encoded_image<Formats> item(std::move(*s), how);
    s.reset();
    co_yield give(item);
  }
}
}  // namespace detail

/// What decode_images() returns.
template <class Formats>
class decode_images_stage : public detail::library_stage {
 public:
  explicit decode_images_stage(const image_options& options)
      : how_(std::make_shared<const basic_image_row_writer<Formats>>(options)) {}
  stream<basic_encoded_image<Formats>> operator()(async_generator<sample> source) && {
    return stream(detail::images_of<Formats>(std::move(source), std::move(how_))).named("decode_images");
  }

 private:
  std::shared_ptr<const basic_image_row_writer<Formats>> how_;
};

/// A stage from samples with images of any size to tensors of one size, which batch() makes batches of:
///
///     samples | decode_images({.height = 224, .width = 224, .crop = crop::random_resized{}, .flip = 0.5,
///                              .layout = image_layout::chw, .type = dtype::f16,
///                              .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}})
///             | batch(256) | to_device(copies)
///
/// Decoding takes place where a batch is made: batch() starts it on a pool, several images at once, and each value is
/// stored once, in its place in the batch. Batches have the field "image" and, from the text field
/// image_options::label, "label"; keys, and tags<origin>().
///
/// Crops and flips are drawn from random numbers of each sample's own, sample::random(): of (seed, epoch, shard, place in
/// it), seed and epoch as epochs() or
/// shuffle_shards() was given them. The batches are the same to the bit for any number of threads,
/// and a sample's image is the same on any rank.
///
/// Holds nothing. Errors: image_row_writer's, by batch(256, {.failures = ...}); configuration_error at once for options
/// that contradict each other.
template <class Formats = detail::linked_formats>
decode_images_stage<Formats> decode_images(const image_options& options) {
  return decode_images_stage<Formats>(options);
}

}  // namespace millrace
