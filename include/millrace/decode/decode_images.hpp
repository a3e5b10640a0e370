// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/device/batch_rows.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {
/// Logs, once in a process, that a sample has several images and which one is taken.
void say_several_images(const sample& s, const field& taken);
}  // namespace detail

/// Writes a sample's image, and its class number if it has one, into a row of a batch: used by decode_images() for each
/// image, and a function for fill_batches(), alone or as a part of your own. Copies share memory.
///
/// If a sample has several images and image_options::field is not set, the first in the archive is taken; one line in
/// the log, once in a process, names such a sample.
///
/// With image_options::mask the image and the mask of a sample have one size, and get the same crop and flip.
///
/// The row has the fields of layout(), beginning with them. Thread-safe. Errors: decode_error, for a sample without an
/// image or a label, and those of image_decoder.
class image_row_writer {
 public:
  /// Throws configuration_error for options that contradict each other.
  template <class Formats = detail::linked_formats>
  explicit image_row_writer(const image_options& options) : image_row_writer(options, Formats::makers()) {}
  image_row_writer(const image_options& options, const detail::source_makers& formats);

  void operator()(const sample& s, const batch_row& row) const;

  /// The layout of batches of up to `samples`: "image", "label" (i64) and "mask" (u8), the latter two if
  /// image_options::label and image_options::mask name a field.
  batch_layout layout(std::size_t samples) const;

 private:
  const bytes& image_of(const sample& s) const;

  image_decoder decoder_;
  std::optional<image_decoder> mask_;
};

/// A sample whose image is decoded when it is written into a row of a batch: made by decode_images(). Until then it
/// holds the compressed image; shuffle() and buffer() keep many of them. A row_item.
class encoded_image {
 public:
  encoded_image(sample s, std::shared_ptr<const image_row_writer> how) noexcept
      : encoded(std::move(s)), how_(std::move(how)) {}

  sample encoded;

  static constexpr bool writes_whole_rows = true;
  batch_layout layout(std::size_t samples) const { return how_->layout(samples); }
  void write_to(const batch_row& row) const { (*how_)(encoded, row); }

  friend const sample& place_of(const encoded_image& i) noexcept { return i.encoded; }
  friend epoch_mark mark_of(const encoded_image& i) noexcept { return i.encoded.mark; }
  friend void set_mark(encoded_image& i, const epoch_mark& mark) noexcept { i.encoded.mark = mark; }
  friend std::size_t byte_size(const encoded_image& i) noexcept { return byte_size(i.encoded); }
  friend const bytes* slice_of(const encoded_image& i) noexcept { return slice_of(i.encoded); }
  friend encoded_image compact_slices(encoded_image i) {
    return encoded_image(compact_slices(std::move(i.encoded)), std::move(i.how_));
  }

 private:
  std::shared_ptr<const image_row_writer> how_;
};

/// What batch() makes of images: batch_rows() of any row_item, compiled once.
MILLRACE_COROUTINE stream<host_batch> batch_rows(async_generator<encoded_image>&& source, std::size_t samples,
                                                 const batch_options& options);

namespace detail {
MILLRACE_COROUTINE async_generator<encoded_image> images_of(async_generator<sample> source,
                                                            std::shared_ptr<const image_row_writer> how);
}  // namespace detail

/// Returned by decode_images().
class decode_images_stage : public detail::library_stage {
 public:
  explicit decode_images_stage(std::shared_ptr<const image_row_writer> how) noexcept : how_(std::move(how)) {}
  MILLRACE_COROUTINE stream<encoded_image> operator()(async_generator<sample> source) &&;

 private:
  std::shared_ptr<const image_row_writer> how_;
};

/// A stage from samples with images of any size to tensors of one size, which batch() makes batches of:
///
///     samples | decode_images({.height = 224, .width = 224, .crop = crop::random_resized{}, .flip = 0.5,
///                              .layout = image_layout::chw, .type = dtype::f16,
///                              .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}})
///             | batch(256) | to_device(copies)
///
/// Decoding happens when a batch is made: batch() starts it on a pool, several images at once, and each value is stored
/// once, in its row of the batch. Batches have the field "image" and, from the text field image_options::label,
/// "label", from the field image_options::mask "mask"; keys, and tags<origin>().
///
/// Crops and flips are drawn from each sample's random numbers, sample::random(): a function of (seed, epoch, shard,
/// the sample's number in it), with the seed and epoch of epochs() or shuffle_shards(). The batches are bit for bit the
/// same for any number of threads, and a sample's image is the same on any rank.
///
/// Holds nothing. Errors: image_row_writer's, by batch(256, {.failures = ...}); configuration_error at once for options
/// that contradict each other.
template <class Formats = detail::linked_formats>
decode_images_stage decode_images(const image_options& options) {
  return decode_images_stage(std::make_shared<const image_row_writer>(options, Formats::makers()));
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/decode_images.ipp>
#endif
