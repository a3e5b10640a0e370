// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/decode/parse_label.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/flow/purpose.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace {

namespace detail {

/// The random numbers of one sample: of (seed, epoch, shard, ordinal) and nothing else, so that they do not depend on
/// threads, ranks or on what was read before. Of a sample without an origin the key stands for its place.
inline rng random_of(const sample& s, std::uint64_t seed, std::uint64_t epoch) noexcept {
  std::uint64_t place = 0xcbf29ce484222325;  // FNV-1a (G. Fowler, L. C. Noll, K.-P. Vo)
  for (const char c : s.from ? s.from.url() : s.key) place = (place ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return rng(rng(seed, epoch, purpose::augment).next(), place, s.from.ordinal);
}

}  // namespace detail

/// Writes a sample's image, and its class number if it is to have one, into a row of a batch: what decode_images() does
/// for each, and a function for fill_batches() where that is to be called by a stage of one's own. Copies share memory.
///
/// The row has the fields of layout(), beginning with them. Thread-safe. Errors: decode_error, for a sample without an
/// image or a label, and those of image_decoder.
template <class Formats = detail::linked_formats>
class basic_image_row_writer {
 public:
  explicit basic_image_row_writer(const image_options& options) : decoder_(options) {}

  void operator()(const sample& s, const batch_row& row) const {
    const image_options& o = decoder_.options();
    rng numbers = detail::random_of(s, o.seed, o.epoch);
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

/// How decode_images() makes batches.
struct image_batches {
  std::size_t size = 0;                ///< samples in a batch; needed
  last_batch last = last_batch::keep;  ///< drop: samples at the end that do not fill a batch are dropped
  pool_ref on = nullptr;               ///< where images are decoded, to outlive the pipeline; none: the runtime's pool
  std::size_t limit = 0;               ///< samples worked on at once; 0: twice the pool's threads
};

namespace detail {
inline fill_batches_stage<image_row_writer> image_batches_stage(const batch_pool& pool, const image_row_writer& writer,
                                                                const image_batches& batches) {
  if (batches.size == 0) throw configuration_error("decode_images: the size of a batch must not be 0");
  return fill_batches(pool, writer, {.on = batches.on, .limit = batches.limit, .last = batches.last});
}
}  // namespace detail

/// A stage from samples with images of any size to batches of tensors of one size:
///
///     samples | decode_images({.height = 224, .width = 224, .crop = crop::random_resized{}, .flip = 0.5,
///                              .layout = image_layout::chw, .type = dtype::f16,
///                              .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f},
///                              .seed = 7, .epoch = epoch}, {.size = 256}, copies)
///             | to_device(copies)
///
/// Images are decoded on a pool, several at once, each value straight to its place in a batch, which lies in page-locked
/// memory of the device of `target`, a cuda::stream or a device: to_device() copies it from there. Batches have the
/// fields "image" and, from the text field image_options::label, "label"; keys, and tags<origin>().
/// Crops and flips are drawn from random numbers of each sample's own: (seed, epoch, shard, place in it). The batches are
/// the same to the bit for any number of threads, and on any rank.
/// Order, bound, cancellation and errors are those of fill_batches(). Throws configuration_error for options that
/// contradict each other.
template <class Target>
fill_batches_stage<image_row_writer> decode_images(const image_options& images, const image_batches& batches,
                                                   const Target& target) {
  const image_row_writer writer(images);
  return detail::image_batches_stage(batch_pool(writer.layout(batches.size), target), writer, batches);
}
/// The same into ordinary memory, for batches that do not go to a device.
inline fill_batches_stage<image_row_writer> decode_images(const image_options& images, const image_batches& batches) {
  const image_row_writer writer(images);
  return detail::image_batches_stage(batch_pool(writer.layout(batches.size)), writer, batches);
}

}  // namespace millrace
