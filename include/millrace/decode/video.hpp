// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <millrace/base/short_text.hpp>
#include <millrace/decode/image.hpp>
#include <millrace/device/tensor.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The places in a video where its clips begin.
enum class clip_start : std::uint8_t {
  first,  ///< the video's beginning; each further clip begins where the one before it ends
  even,   ///< the middles of equal parts of all beginnings that there are; of one clip the middle
  random  ///< any, each equally likely and drawn for itself; clips of one video are in the order of time
};

/// The form of decoded clips: see video_decoder and decode_video().
struct video_options {
  int frames = 0;  ///< of a clip; needed
  int height = 0;  ///< of the tensor, in pixels; needed
  int width = 0;   ///< of the tensor, in pixels; needed
  int clips = 1;   ///< of a video
  clip_start start = clip_start::random;
  int stride = 1;     ///< from one frame of a clip to the next, in the video's frames; 1: all of them
  double rate = 0;    ///< frames a second of a clip: at each time the frame that is shown then; 0: by .stride
  bool fill = false;  ///< repeats the last frame where a video is too short for its clips; else that is an error
  ::millrace::image_crop crop = ::millrace::crop::none;  ///< the part of the frames that is resized, one for a clip
  double flip = 0;                                       ///< the probability that a clip is mirrored, left for right
  image_filter filter = image_filter::bilinear;
  image_layout layout = image_layout::hwc;  ///< of a frame
  dtype type = dtype::u8;  ///< u8: 0 to 255. f16, bf16, f32: (value / 255 - mean) / std, rounded to nearest
  /// Of red, green and blue; for the floating-point types.
  ::std::array<float, 3> mean = {0, 0, 0};
  ::std::array<float, 3> std = {1, 1, 1};
  bool upright = true;               ///< turns frames as the video's display matrix says, by quarters
  bool tolerate_corruption = false;  ///< takes damaged frames as the codec repairs them, and what a cut file has
  /// Videos of larger frames are refused before memory is allocated for them.
  std::uint64_t max_pixels = std::uint64_t(1) << 26;
  /// Videos of more frames are refused; MP4s also by the packets of all their tracks, before they are read.
  std::uint64_t max_frames = std::uint64_t(1) << 22;
  short_text<32> field = "";  ///< of a sample; empty: its first field that is a video by content
  short_text<32> label = "";  ///< of a sample: a class number for the tensor "label"; empty: no such tensor
  /// Fields of a sample that say which part of the video counts, in its seconds, f64, as video_shards() makes them. A
  /// sample that has neither is taken whole.
  short_text<32> begin = "begin";
  short_text<32> end = "end";
};

/// A part of a video: the frames that are shown at begin <= t < end, in seconds, and the one that is shown at begin.
class video_span {
 public:
  double begin = 0;
  double end = 0;
};

/// Facts about a clip that was decoded.
class decoded_clip {
 public:
  std::vector<double> times;  ///< of its frames: when each is shown first, in seconds as the video's timestamps say
  std::int64_t length = 0;    ///< how many frames are the video's; those after them repeat the last one
  image_geometry geometry;    ///< of all its frames
};

namespace detail {

enum class video_kind : std::uint8_t { unknown, mp4, matroska };

/// The format by content, whatever the name of the data.
constexpr video_kind video_kind_of(std::string_view data) noexcept {
  if (data.starts_with("\x1a\x45\xdf\xa3")) return video_kind::matroska;
  if (data.size() < 12) return video_kind::unknown;
  const std::string_view box = data.substr(4, 4);
  const std::string_view brand = data.substr(8, 4);
  if (box == "ftyp" || box == "styp") {
    const bool other = brand == "M4A " || brand == "M4B " || !other_image_format(data).empty();
    return other ? video_kind::unknown : video_kind::mp4;
  }
  // Older files of QuickTime; a text has no such byte before these words.
  const bool old = box == "moov" || box == "mdat" || box == "wide" || box == "free" || box == "skip";
  return old && static_cast<unsigned char>(data[0]) < 9 ? video_kind::mp4 : video_kind::unknown;
}

}  // namespace detail

}  // namespace millrace::inline MILLRACE_ABI
