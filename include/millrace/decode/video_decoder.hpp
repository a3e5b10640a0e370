// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/decode/video.hpp>
#include <millrace/device/tensor.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Decodes clips of the video in an MP4 (also fragmented), QuickTime or Matroska file (WebM too): turns frames upright,
/// crops, resizes, mirrors, normalises, and stores each value once, at its destination. Of several videos in a file the
/// one is taken that FFmpeg takes. The codecs are H.264, HEVC, AV1, VP8, VP9, MPEG-4 part 2 and FFV1, as FFmpeg's
/// libavcodec has them, with one thread a call; frames become RGB of 8 bits by libswscale, and equal those of
/// `ffmpeg -pix_fmt rgb24`. The format is detected from the first bytes, not from the name.
///
/// The packets of the file are read once, which finds the frames and their timestamps with the file's edit lists in
/// force; those of the clips are decoded from the key frame before them on. A frame that two clips or two times of a
/// clip have is decoded once. Pixels count, whatever the aspect ratio of a pixel.
///
/// Thread-safe: calls on several threads use memory of their own, kept for reuse. Copies share it. The result depends
/// on the data, the options and the random numbers alone. Errors: decode_error, which names the place `at`, with the
/// byte of the file and the timestamp where a packet is damaged: no video, a codec that is not there, cut short,
/// damaged as far as its codec tells, too short for the clips, larger than .max_pixels or .max_frames. So is memory
/// that FFmpeg does not get, since damaged files ask for gigabytes; other memory is std::bad_alloc. Frames that no clip
/// needs are not decoded, and so not checked.
///
/// FFmpeg would print lines of its own beside these errors: the constructor sets the level of its log, one for the
/// process, from the default to AV_LOG_QUIET. Another level, set by av_log_set_level(), stays.
class video_decoder {
 public:
  /// Throws configuration_error for options that contradict each other.
  explicit video_decoder(const video_options& options);

  const video_options& options() const noexcept { return options_; }
  /// The shape of the tensors: frames x height x width x 3, or frames x 3 x height x width; with several clips their
  /// number before that.
  shape dims() const;

  /// The clips of one video into memory of the caller, a row of a batch for example, of the shape dims() and the type
  /// of the options: anything else is a configuration_error. Draws from `numbers` a random beginning for each clip,
  /// then crop and flip of the first clip, of the second, and so on. With `part` the clips are of its frames, as if the
  /// video had no others; decode_error if it has none.
  std::vector<decoded_clip> into(const tensor_view& place, const bytes& file, sample_rng& numbers,
                                 const where& at = where(), std::optional<video_span> part = {}) const;

 private:
  // The state of one thread, in a chain while it is idle.
  struct workspace;
  struct shared;

  std::vector<decoded_clip> decode(workspace& w, void* tensor, const bytes& file, sample_rng& numbers, const where& at,
                                   const std::optional<video_span>& part) const;
  std::unique_ptr<workspace> take() const;
  void give_back(std::unique_ptr<workspace> w) const noexcept;

  video_options options_;
  std::shared_ptr<shared> shared_;
};

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/video_decoder.ipp>
#endif
