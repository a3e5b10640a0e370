// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/decode/encoded_sample.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/decode/pixels.hpp>
#include <millrace/device/batch_rows.hpp>
#include <millrace/memory/pixel_pool.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {
/// Logs, once in a process, that a sample has several images and which one is taken.
void say_several_images(const sample& s, const field& taken);

template <class F>
concept changes_masks = std::is_invocable_v<const F&, const pixels<float>&, const pixels<std::uint8_t>&, sample_rng&>;
template <class F>
concept changes_images = changes_masks<F> || std::is_invocable_v<const F&, const pixels<float>&, sample_rng&>;

/// A program's function of images, the options of the rows that it leads to, and memory for what it gets.
class image_function {
 public:
  image_function(const image_options& o, bool with_mask) : options(o), needs_mask(with_mask) {}
  image_function(const image_function&) = delete;
  image_function& operator=(const image_function&) = delete;
  virtual ~image_function() = default;
  /// `mask` is without values where the options name none.
  virtual void call(const pixels<float>& chw, const pixels<std::uint8_t>& mask, sample_rng& numbers) const = 0;

  const image_options options;
  const bool needs_mask;
  mutable pixel_pool scratch;
};

template <class F>
class image_function_of final : public image_function {
 public:
  image_function_of(const image_options& o, F f) : image_function(o, changes_masks<F>), f_(std::move(f)) {}
  void call(const pixels<float>& chw, const pixels<std::uint8_t>& mask, sample_rng& numbers) const override {
    if constexpr (changes_masks<F>) {
      f_(chw, mask, numbers);
    } else {
      f_(chw, numbers);
    }
  }

 private:
  F f_;
};
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
  /// With a function that changes each image: see decode_images().
  template <class Formats = detail::linked_formats, detail::changes_images F>
  image_row_writer(const image_options& options, F f)
      : image_row_writer(options, Formats::makers(),
                         std::make_shared<const detail::image_function_of<F>>(options, std::move(f))) {}
  image_row_writer(const image_options& options, const detail::source_makers& formats,
                   std::shared_ptr<const detail::image_function> f = nullptr);

  /// Returns what became of the image, for boxes and points in further fields of the row.
  image_geometry operator()(const sample& s, const batch_row& row) const;

  /// The layout of batches of up to `samples`: "image", "label" and "mask" (u8), the latter two if
  /// image_options::label and image_options::mask name a field. Labels are i64, or f32 of image_options::one_hot
  /// values.
  batch_layout layout(std::size_t samples) const;

 private:
  const bytes& image_of(const sample& s) const;
  const image_options& options() const noexcept { return f_ != nullptr ? f_->options : decoder_.options(); }

  image_decoder decoder_;  // with a function: f32 from 0 to 1, chw
  std::optional<image_decoder> mask_;
  std::shared_ptr<const detail::image_function> f_;
};

/// A sample whose image is decoded when it is written into a row of a batch: made by decode_images().
using encoded_image = encoded_sample<image_row_writer>;

/// What batch() makes of images: batch_rows() of any row_item, compiled once.
MILLRACE_COROUTINE stream<host_batch> batch_rows(async_generator<encoded_image>&& source, std::size_t samples,
                                                 const batch_options& options);

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

/// The same, and f(chw, numbers) changes each image after it was cropped, resized and mirrored, and before it is
/// normalised: `mill::pixels<float> chw` has values from 0 to 1, whatever the type and the layout of the tensors, and
/// stays valid during the call. `mill::sample_rng& numbers` goes on after the crop and the flip with the sample's own
/// random numbers. decode/augment.hpp has functions for it.
///
///     samples | decode_images(options, [](const mill::pixels<float>& chw, mill::sample_rng& numbers) {
///       mill::augment::brightness(chw, 0.8F + 0.4F * static_cast<float>(numbers.uniform()));
///     }) | batch(256)
///
/// Then (value - mean) / std is stored, or for u8 the nearest of 0 to 255; tensors of another type or layout than f32
/// and chw cost a copy of the image as f32, a job of the pool. f is called by several threads at once, as const. An
/// exception of it is one of the sample's: an error of the library gets the sample's place, any other is nested in an
/// item_error, which has it; `.failures` of batch() counts both. A sample without an origin is a usage_error.
///
/// A function f(chw, mask, numbers) changes image and mask (image_options::mask) together, such as by a geometry of its
/// own: `mill::pixels<std::uint8_t> mask` has one channel of class numbers, at the image's size, in its row of the
/// batch. Without a field for masks it is a configuration_error. f(chw, numbers) leaves masks as they are.
template <class Formats = detail::linked_formats, detail::changes_images F>
decode_images_stage decode_images(const image_options& options, F f) {
  return decode_images_stage(std::make_shared<const image_row_writer>(
      options, Formats::makers(), std::make_shared<const detail::image_function_of<F>>(options, std::move(f))));
}

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/decode_images.ipp>
#endif
