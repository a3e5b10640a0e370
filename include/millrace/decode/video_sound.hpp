// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <millrace/base/error.hpp>
#include <millrace/base/short_text.hpp>
#include <millrace/decode/decode_video.hpp>
#include <millrace/decode/video.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI {

/// See video_sound() and sound_of_videos().
struct video_sound_options {
  bool tolerate_corruption = false;  ///< silence for packets that cannot be decoded; takes what a cut file has
  /// More values (frames times channels) than this, silence included, are refused; at most 2^30.
  std::uint64_t max_values = std::uint64_t(1) << 28;
  /// MP4s of more packets, of all tracks, are refused before they are read; each value of PCM may count for one.
  std::uint64_t max_packets = std::uint64_t(1) << 22;
  short_text<32> field = "";  ///< of a sample; empty: its first field that is a video by content
  /// Fields of a sample that say which part of the video counts: video_options::begin.
  short_text<32> begin = "begin";
  short_text<32> end = "end";
};

/// Decodes the sound track of an MP4, QuickTime or Matroska file (WebM too) to a WAV recording of f32, with the track's
/// rate and channels, which audio_decoder and decode_audio() read. Of several tracks the first one that is enabled is
/// taken, else the first. The codecs are AAC, Opus, MP3, AC-3, E-AC-3, FLAC, ALAC, Vorbis and PCM, as FFmpeg's
/// libavcodec has them; the values are those of `ffmpeg -f f32le`, with edit lists and the delays of encoders (packets'
/// AV_PKT_DATA_SKIP_SAMPLES) in force.
///
/// The recording is on the video's clock: frame i is heard i / rate seconds after `part->begin`, or, without a part,
/// after the first frame of the video is shown. Where the track has nothing, before its beginning and in gaps of more
/// than 20 ms, there is silence; after its end, or the part's, there is nothing. It is as exact as the file's
/// timestamps: Matroska's are whole milliseconds. Of a part little more than its packets is decoded; lossless codecs
/// give the same values as the whole, others may differ in the noise that they put in.
///
/// Thread-safe. Memory: the values and one copy. Errors: decode_error, which names the place `at`, with the byte of the
/// file and the time where a packet is damaged: no sound, none in the part, a codec that is not there, rates or
/// channels that change, cut short, damaged as far as its codec tells, more than .max_values or .max_packets.
bytes video_sound(const bytes& file, const video_sound_options& options = {}, const where& at = where(),
                  std::optional<video_span> part = {});

/// The same of a sample: of its video, between its begin and end where it has them, as those of video_shards() do.
bytes video_sound(const sample& s, const video_sound_options& options = {});

/// The function that sound_of_videos() calls for each sample, and a function for map_concurrent() of your own.
class video_sound_reader {
 public:
  explicit video_sound_reader(const video_sound_options& options) : options_(options) {}

  sample operator()(sample s) const;
  /// For map_concurrent(): the same in a run of so large a budget, which no recording's values may exceed.
  video_sound_reader within(std::size_t budget) const {
    video_sound_options bounded = options_;
    bounded.max_values = std::min<std::uint64_t>(bounded.max_values, budget / sizeof(float));
    return video_sound_reader(bounded);
  }

 private:
  video_sound_options options_;
};

/// A stage from samples with videos to the same with what is heard in place of the video, a field "sound.wav" that
/// video_sound() makes, for decode_audio():
///
///     samples | sound_of_videos() | decode_audio({.rate = 16000, .channels = 1, .seconds = 2}) | batch(32)
///
/// For frames and sound in one row of a batch, call video_sound() in a function for fill_batches().
///
/// Everything else is map_concurrent()'s: order, bound, `work`, cancellation, errors. Needs the component
/// millrace::video.
inline auto sound_of_videos(const video_sound_options& options = {}, const map_concurrent_options& work = {}) {
  return map_concurrent_stage(video_sound_reader(options), work, "sound_of_videos");
}

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/video_sound.ipp>
#endif
