// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <millrace/decode/audio_decoder.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A sample whose recording is decoded: made by decode_audio(). Batches of them have the fields "audio" (f32 or i16;
/// samples x frames, and x channels if audio_options::channels is not 1), "audio_lengths" (i64: how many frames were
/// recorded), if audio_options::label names a field "label" (i64); keys, and tags<origin>(). Recordings of one
/// length by the options (.seconds with .fill) make batches of one shape; others are padded to the longest of their
/// batch, or as audio_options::pad says.
class audio_sample {
 public:
  audio_sample(sample s, audio decoded, std::optional<std::int64_t> number,
               std::shared_ptr<const audio_options> options) noexcept
      : of(std::move(s)), sound(std::move(decoded)), label(number), how(std::move(options)) {}

  sample of;    ///< without the recording as it was read
  audio sound;  ///< empty for entries that only fill up the last batch of an epoch
  std::optional<std::int64_t> label;
  std::shared_ptr<const audio_options> how;  ///< it was made

  friend const sample& place_of(const audio_sample& a) noexcept { return a.of; }
  friend epoch_mark mark_of(const audio_sample& a) noexcept { return a.of.mark; }
  friend void set_mark(audio_sample& a, const epoch_mark& mark) noexcept { a.of.mark = mark; }
  friend std::size_t byte_size(const audio_sample& a) noexcept { return byte_size(a.of) + byte_size(a.sound); }
  friend const bytes* slice_of(const audio_sample& a) noexcept { return slice_of(a.of); }
  friend audio_sample compact_slices(audio_sample a) {
    a.of = compact_slices(std::move(a.of));
    return a;
  }
};

/// Lays the recording out in a row of a batch.
void collate(const audio_sample& a, sample_writer& out);

/// The function that decode_audio() calls for each sample, and a function for map_concurrent() of your own.
/// Thread-safe; copies share memory. Errors: decode_error, for a sample without a recording or a label, and those of
/// audio_decoder.
class audio_reader {
 public:
  /// Throws configuration_error for invalid options.
  explicit audio_reader(const audio_options& options)
      : decoder_(options), options_(std::make_shared<const audio_options>(options)) {}

  audio_sample operator()(sample s) const;
  /// For map_concurrent(): the same in a run of so large a budget, which no recording's values may exceed.
  audio_reader within(std::size_t budget) const {
    audio_options bounded = *options_;
    bounded.max_values = std::min<std::uint64_t>(bounded.max_values, budget / size_of(bounded.type));
    return audio_reader(bounded);
  }
  /// For map_concurrent(): a sample without a recording, of weight 0.
  audio_sample in_place_of(const epoch_mark& mark) const;

 private:
  std::size_t field_of(const sample& s) const;

  audio_decoder decoder_;
  std::shared_ptr<const audio_options> options_;
};

/// A stage from samples with recordings to their values, decoded on a pool:
///
///     samples | decode_audio({.rate = 16000, .channels = 1, .seconds = 4, .crop = audio_crop::random}) | batch(32)
///             | to_device(copies)
///
/// If a sample has several recordings and audio_options::field is not set, the first in the archive is taken, and one
/// line in the log says so.
///
/// Random parts are drawn from each sample's random numbers, sample::random(): a function of (seed, epoch, shard, the
/// sample's number in it), with the seed and epoch of epochs() or shuffle_shards(). So they are the same for any number
/// of threads and on any rank. A sample that is left out by `.failures`, of epochs() with an index or after
/// equal_batches::fill(), is a row of zeros and weight 0 in its place. Everything else is map_concurrent()'s: order,
/// bound, `work`, cancellation, errors.
inline auto decode_audio(const audio_options& options, const map_concurrent_options& work = {}) {
  return map_concurrent_stage(audio_reader(options), work, "decode_audio");
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/decode_audio.ipp>
#endif
