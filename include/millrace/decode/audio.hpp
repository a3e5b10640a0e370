// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <millrace/base/short_text.hpp>
#include <millrace/device/dtype.hpp>
#include <millrace/device/pad_options.hpp>
#include <millrace/memory/pixel_buffer.hpp>

namespace millrace {

/// Which part of a recording is taken that is longer than audio_options::seconds.
enum class audio_crop : std::uint8_t {
  start,   ///< its beginning
  center,  ///< its middle
  random   ///< any, each frame equally likely to be the first
};

/// What recordings become: see audio_decoder and decode_audio().
struct audio_options {
  int rate = 0;                         ///< frames a second, resampled where a recording has another; 0: as it is
  int channels = 0;                     ///< 1: the mean of all; 2: one becomes two; 0: as they are
  double seconds = 0;                   ///< the most that is taken of a recording; 0: all of it
  audio_crop crop = audio_crop::start;  ///< the part that is taken of a longer one
  bool fill = true;                     ///< with .seconds: zeros behind shorter ones, so that all have one length
  dtype type = dtype::f32;              ///< f32: from -1 to 1; i16: 32768 times that, rounded and clipped
  bool tolerate_corruption = false;     ///< takes what can be had of data that are cut short or damaged
  /// More values (frames times channels) than this are refused before they are decoded.
  std::uint64_t max_values = std::uint64_t(1) << 28;
  pad_options pad = {};       ///< in a batch, of recordings whose lengths differ: without .seconds, or without .fill
  short_text<32> field = "";  ///< of a sample; empty: its first field that is a recording by content
  short_text<32> label = "";  ///< of a sample: a class number for the tensor "label"; empty: no such tensor
};

/// A decoded recording: frame by frame, in each the values of all channels.
class audio {
 public:
  audio() = default;
  audio(pixel_buffer data, std::size_t n, int c, int r, dtype t) noexcept
      : values(std::move(data)), frames(n), channels(c), rate(r), type(t) {}

  pixel_buffer values;     ///< rows * channels values of `type`
  std::size_t frames = 0;  ///< that were recorded; zeros behind them are not counted
  int channels = 0;
  int rate = 0;  ///< frames a second
  dtype type = dtype::f32;

  /// Frames with the zeros behind them.
  std::size_t rows() const noexcept {
    return channels == 0 ? 0 : values.size() / size_of(type) / static_cast<std::size_t>(channels);
  }
  /// The values, each of them 4 bytes (f32) or 2 (i16). Valid as long as this is and is not assigned to.
  const void* data() const noexcept { return values.data(); }

  friend std::size_t byte_size(const audio& a) noexcept { return a.values.size(); }
};

}  // namespace millrace
