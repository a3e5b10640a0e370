// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/decode/encoded_sample.hpp>
#include <millrace/decode/video_decoder.hpp>
#include <millrace/device/batch_rows.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// The field of a sample that is a video: the one of that name, else the first by content; decode_error if there is
/// none. `options`, the name of a type, is for the line in the log about several.
std::size_t video_field_of(const sample& s, std::string_view name, const char* options);
/// The part of it that counts, as the fields of these names say; nothing if it has neither.
std::optional<video_span> video_part_of(const sample& s, std::string_view begin, std::string_view end);

}  // namespace detail

/// Writes the clips of a sample's video, and its class number if it has one, into a row of a batch: used by
/// decode_video() for each sample, and a function for fill_batches(), alone or as a part of your own. Copies share
/// memory.
///
/// If a sample has several videos and video_options::field is not set, the first in the archive is taken; one line in
/// the log, once in a process, names such a sample. Of a sample of video_shards() the frames between its begin and end
/// count: see video_options::begin.
///
/// The row has the fields of layout(), beginning with them. Thread-safe. Errors: decode_error, for a sample without a
/// video or a label, and those of video_decoder.
class video_row_writer {
 public:
  /// Throws configuration_error for options that contradict each other.
  explicit video_row_writer(const video_options& options) : decoder_(options) {}

  void operator()(const sample& s, const batch_row& row) const;

  /// The layout of batches of up to `samples`: "video"; "video_times" (f64, seconds), for each frame; "video_lengths"
  /// (i64, frames), for each clip; and, if video_options::label names a field, "label" (i64). With several clips of a
  /// video, their number is the first extent of the first three.
  batch_layout layout(std::size_t samples) const;

 private:
  video_decoder decoder_;
};

/// A sample whose video is decoded when it is written into a row of a batch: made by decode_video().
using encoded_video = encoded_sample<video_row_writer>;

/// What batch() makes of videos: batch_rows() of any row_item, compiled once.
MILLRACE_COROUTINE stream<host_batch> batch_rows(async_generator<encoded_video>&& source, std::size_t samples,
                                                 const batch_options& options);

/// Returned by decode_video().
class decode_video_stage : public detail::library_stage {
 public:
  explicit decode_video_stage(std::shared_ptr<const video_row_writer> how) noexcept : how_(std::move(how)) {}
  MILLRACE_COROUTINE stream<encoded_video> operator()(async_generator<sample> source) &&;

 private:
  std::shared_ptr<const video_row_writer> how_;
};

/// A stage from samples with videos to tensors of clips, which batch() makes batches of:
///
///     samples | decode_video({.frames = 16, .height = 112, .width = 112, .rate = 8,
///                             .crop = crop::random_resized{}, .flip = 0.5, .layout = image_layout::chw,
///                             .type = dtype::f16, .label = "cls"})
///             | batch(32) | to_device(copies)
///
/// Decoding happens when a batch is made: batch() starts it on a pool, several videos at once, one thread each, and
/// each value is stored once, in its row of the batch. Batches have the fields of video_row_writer::layout(); keys, and
/// tags<origin>().
///
/// Clips, crops and flips are drawn from each sample's random numbers, sample::random(): a function of (seed, epoch,
/// shard, the sample's number in it), with the seed and epoch of epochs() or shuffle_shards(). So they are the same for
/// any number of threads and on any rank.
///
/// Holds nothing. Errors: video_row_writer's, by batch(32, {.failures = ...}); configuration_error at once for options
/// that contradict each other. Needs the component millrace::video; a program that has the bodies compiled once links
/// millrace::compiled_video.
inline decode_video_stage decode_video(const video_options& options) {
  return decode_video_stage(std::make_shared<const video_row_writer>(options));
}

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/decode_video.ipp>
#endif
