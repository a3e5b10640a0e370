// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/base/short_text.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/device/tensor.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/pixel_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Which part of a recording is taken that is longer than audio_options::seconds.
enum class audio_crop : std::uint8_t {
  start,   ///< its beginning
  center,  ///< its middle
  random   ///< any, each frame equally likely to be the first
};

/// The form of decoded recordings: see audio_decoder and decode_audio().
struct audio_options {
  int rate = 0;                         ///< frames a second, resampled if a recording has another; 0: as it is
  int channels = 0;                     ///< 1: the mean of all; 2: one becomes two; 0: as they are
  double seconds = 0;                   ///< the most that is taken of a recording; 0: all of it
  audio_crop crop = audio_crop::start;  ///< the part that is taken of a longer one
  bool fill = true;                     ///< with .seconds: zeros after shorter ones, so that all have one length
  dtype type = dtype::f32;              ///< f32: from -1 to 1; i16: 32768 times that, rounded and clipped
  bool tolerate_corruption = false;     ///< decodes the readable part of truncated or damaged data
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
  std::size_t frames = 0;  ///< that were recorded; zeros after them are not counted
  int channels = 0;
  int rate = 0;  ///< frames a second
  dtype type = dtype::f32;

  /// Frames with the zeros after them.
  std::size_t rows() const noexcept {
    return channels == 0 ? 0 : values.size() / size_of(type) / static_cast<std::size_t>(channels);
  }
  /// The values, each of them 4 bytes (f32) or 2 (i16). Valid as long as this is and is not assigned to.
  const void* data() const noexcept { return values.data(); }

  friend std::size_t byte_size(const audio& a) noexcept { return a.values.size(); }
};

/// Decodes WAV (RIFF, RIFX and RF64), FLAC, Ogg (Vorbis, Opus), MP3, AIFF, AU, CAF and W64 to values of one rate,
/// number of channels and type, in the encodings that libsndfile supports. The format is detected from the first bytes,
/// not from the name. The data is read in place.
///
/// A part is cut out before it is resampled, by libsoxr at its high quality (20 bits); without resampling a part equals
/// that part of the whole recording, to the bit, or for an MP3 but for the last bit. Without resampling and mixing the
/// values are those of libsndfile. Thread-safe: calls on several threads use memory of their own, kept for reuse.
/// Copies share it, and the memory of the recordings, which may outlive them all.
///
/// The result depends on the data, the options and `place` alone. Errors: decode_error, which name the place `at`, and
/// in a stage without one that of the stage's item: no recording, cut short, damaged, more than .max_values, channels
/// that cannot be mixed. Data after the decoded part is not decoded, and so not checked.
///
/// The length is that of the data, whatever the header says: an MP3's frames are counted (without a LAME tag all of
/// their values are sound); a WAV, AIFF, AU, CAF or W64 whose header has the length that pipes write is read to its
/// end; chained Oggs and joined MP3s, WAVs, AIFFs and FLACs are decoded one after the other if they have one rate and
/// number of channels, else they are an error; a FLAC or an AIFF with more frames than its header says is read whole,
/// and a line says so. If truncation cannot be detected (such headers, an Ogg without an end-of-stream page) a line in
/// the log reports it, once for each kind; an MP3 without a Xing or Info header that was cut between two frames looks
/// complete.
class audio_decoder {
 public:
  /// Throws configuration_error for invalid options.
  explicit audio_decoder(const audio_options& options = {});

  const audio_options& options() const noexcept { return options_; }

  /// One recording. `place`, from 0 up to 1, says where a random part begins: a number that was drawn, such as
  /// `sample.random(1).uniform()`.
  audio operator()(const bytes& file, double place = 0, const where& at = where()) const;

 private:
  // The state of one thread, in a chain while it is idle.
  struct workspace;
  struct shared;

  audio decode(workspace& w, const bytes& file, double place, const where& at) const;
  std::unique_ptr<workspace> take() const;
  void give_back(std::unique_ptr<workspace> w) const noexcept;

  audio_options options_;
  std::shared_ptr<shared> shared_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/audio_decoder.ipp>
#endif
