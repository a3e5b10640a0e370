// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Reads `bytes` bytes, the most significant first; `at + bytes` must not be beyond the text.
inline std::uint64_t read_be(std::string_view text, std::size_t at, int bytes) noexcept {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value = value << 8 | static_cast<unsigned char>(text[at + static_cast<std::size_t>(i)]);
  }
  return value;
}

/// Appends them.
inline void append_be(std::string& out, std::uint64_t value, int bytes) {
  for (int i = bytes; i-- > 0;) out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

/// A box of an MP4 file (ISO/IEC 14496-12), all of which is in memory.
class mp4_box {
 public:
  std::string_view type;  ///< four bytes
  std::string_view body;  ///< without size and type
  std::string_view all;
  std::uint64_t at = 0;  ///< byte of the object where the body begins
};

/// One frame, or one packet of sound.
class mp4_sample {
 public:
  std::uint64_t offset = 0;  ///< in the object
  std::int64_t decode = 0;   ///< its time in the order of decoding, in ticks of the track
  std::uint32_t size = 0;    ///< in bytes
  std::uint32_t duration = 0;
  std::int32_t shift = 0;  ///< the time when it is shown is `decode` plus this
  bool key = false;        ///< a sync sample: decoding may begin with it
  std::int64_t shown() const noexcept { return decode + shift; }
};

/// A track of a movie. Its samples are in the order of decoding.
class mp4_track {
 public:
  std::uint32_t id = 0;
  std::uint32_t timescale = 1;         ///< ticks in a second
  std::int64_t media_begin = 0;        ///< of the edit list: the time of the track that is shown first
  std::int64_t delay = 0;              ///< and for how many ticks nothing is shown before
  std::int64_t media_end = INT64_MAX;  ///< and the time after the last one that is shown
  std::uint32_t default_duration = 0;  // of `trex`, for fragments
  std::uint32_t default_size = 0;
  std::uint32_t default_flags = 0;
  std::vector<mp4_sample> samples;
  std::string header;  // boxes of an init segment: `tkhd`,
  std::string media;   // and `mdia`, with empty tables

  /// The time of the whole file, in ticks of the track, when a sample is shown.
  std::int64_t presented(const mp4_sample& s) const noexcept { return s.shown() - media_begin + delay; }
};

/// The tracks of an MP4 or QuickTime file that clips are made of: one with pictures, and one with sound if that is
/// wanted. It reads `moov` and each `moof` in memory, and no sample's bytes. Whatever bytes are given, it takes memory
/// in proportion to them, for up to 2^22 samples of a track.
///
/// Throws archive_error for what is damaged or cut, decode_error for what is not read; both have the object's byte.
class mp4_file {
 public:
  static constexpr std::uint64_t longest_box = 128 * 1024 * 1024;  ///< of `moov` and `moof`, in bytes
  static constexpr std::size_t most_samples = 1 << 22;

  mp4_file(std::string object, bool sound) : object_(std::move(object)), sound_(sound) {}

  /// The body of `ftyp`.
  void file_type(std::string_view body) { brand_ = body.substr(0, 4); }
  /// All of `moov`, which begins at this byte of the object.
  void movie(std::string_view box, std::uint64_t at);
  /// All of a `moof`. After movie().
  void fragment(std::string_view box, std::uint64_t at);

  /// After all fragments: compares the samples' places with the object's size, and makes times of decoding before which
  /// no sample is shown, as FFmpeg reads shifts below 0 in another way in fragments than elsewhere. Samples are shown
  /// when they were.
  void finish(std::uint64_t object_size);

  bool has_movie() const noexcept { return has_movie_; }
  /// True if fragments may follow.
  bool fragmented() const noexcept { return fragmented_; }
  /// The pictures first.
  const std::vector<mp4_track>& tracks() const noexcept { return tracks_; }
  /// Makes `ftyp` and `moov` of a file of fragments with these tracks.
  std::string init() const;

 private:
  friend class mp4_tables;
  [[noreturn]] void damaged(const std::string& reason, std::uint64_t at) const;
  [[noreturn]] void refuse(const std::string& reason, std::uint64_t at) const;
  /// Takes the next box of `rest`, which begins at byte `at` of the object; both move on. False at the end.
  bool next(std::string_view& rest, std::uint64_t& at, mp4_box& box) const;
  /// The first box of this type in another; false if there is none.
  bool find(const mp4_box& in, std::string_view type, mp4_box& box) const;
  mp4_box need(const mp4_box& in, std::string_view type) const;
  /// The body has at least this many bytes.
  void at_least(const mp4_box& box, std::size_t bytes) const;
  /// Reads one track.
  void add_track(const mp4_box& trak, std::uint64_t movie_timescale);
  void edits(const mp4_box& trak, std::uint64_t movie_timescale, mp4_track& track) const;
  void description(const mp4_box& stbl, const mp4_box& minf) const;
  void keep_boxes(const mp4_box& trak, mp4_track& track) const;
  void track_fragment(const mp4_box& traf, std::uint64_t moof_at, bool first);
  void add(mp4_track& track, const mp4_sample& sample, std::uint64_t table_at) const;

  std::string object_;
  bool sound_;
  std::string brand_ = "qt  ";
  bool has_movie_ = false;
  bool fragmented_ = false;
  std::string movie_header_;  // `mvhd`, without a duration
  std::vector<mp4_track> tracks_;
};

}  // namespace millrace::inline MILLRACE_ABI::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/detail/mp4_file.ipp>
#endif
