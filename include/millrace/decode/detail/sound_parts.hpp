// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

enum class audio_kind : std::uint8_t { unknown, wav, flac, ogg, mp3, aiff, au, caf, w64 };

/// The kind of a file by its first bytes, or those after an ID3 tag. `wav` is RIFF, RIFX and RF64.
audio_kind audio_kind_of(std::string_view file) noexcept;

/// How long the ID3v2 tags (id3.org, id3v2.4.0-structure, 3.1) are that the text begins with; more than all of it if
/// the last one is cut.
std::size_t id3_size(std::string_view text) noexcept;

/// The unsigned number of `size` bytes at `at`, which must be there.
inline std::uint64_t sound_number(std::string_view text, std::size_t at, std::size_t size, bool big_endian) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value = value << 8 | static_cast<unsigned char>(text[at + (big_endian ? i : size - 1 - i)]);
  }
  return value;
}

/// A frame of MPEG audio, layer III, as its header has it (ISO 11172-3, 2.4.1.3; ISO 13818-3; MPEG 2.5).
class mpeg_frame {
 public:
  std::size_t size = 0;  ///< in bytes, with the header
  bool first_version = false;  ///< MPEG-1, not 2 or 2.5
  bool mono = false;
  int rate = 0;

  static std::optional<mpeg_frame> at(std::string_view file, std::size_t place) noexcept;

  /// The offset of a header of the whole recording (Xing, Info) in the frame: after the side information.
  std::size_t side_end() const noexcept { return 4 + (first_version ? (mono ? 17 : 32) : (mono ? 9 : 17)); }
  bool same_stream(const mpeg_frame& f) const noexcept {
    return first_version == f.first_version && mono == f.mono && rate == f.rate;
  }
};

/// The description of a recording in the frame that an encoder puts before it.
class mpeg_header {
 public:
  std::optional<std::uint64_t> frames;  ///< of the recording, this one not counted, if it says so
  std::optional<std::uint64_t> bytes;   ///< of the recording, with this one
  /// The offset in the file of the number of frames, if libmpg123 reads it and it has the values to leave out at both
  /// ends; else 0.
  std::size_t frames_at = 0;

  /// Nothing if the frame is sound.
  static std::optional<mpeg_header> of(std::string_view file, std::size_t place, const mpeg_frame& frame) noexcept;
};

/// A header frame to put before `count` frames; `first` is the beginning of one of them and `frame` its parsed header.
/// It gives libmpg123, which estimates otherwise, the number of frames, so that exactly their values are decoded.
std::string mpeg_lead_in(std::string_view first, const mpeg_frame& frame, std::uint64_t count);

/// The length of the tag that begins at `place` instead of a frame: ID3, APE, Lyrics3, or zeros; 0: no tag.
std::size_t mpeg_tag_size(std::string_view file, std::size_t place) noexcept;

/// The offset, from `place` on, of the next frame that is followed by another one or by the end; `npos`: none. `like`:
/// of the same stream, if given.
std::size_t find_mpeg_frame(std::string_view file, std::size_t place, const mpeg_frame* like) noexcept;

/// A stretch of a file that libsndfile reads as a file of its own.
class sound_part {
 public:
  std::string head;       ///< bytes before `body`: a header that says the true length, in place of the file's
  std::string_view body;  ///< of the file
};

/// A recording as libsndfile reads it. libsndfile believes the length in a header, estimates it without one, and reads
/// only the first of several chained or joined recordings: so lengths are determined before.
class sound_parts {
 public:
  std::vector<sound_part> parts;     ///< one after the other they are the recording
  std::string fault;                 ///< the missing or damaged part; empty: none, as far as the format tells
  const char* guess = nullptr;       ///< the part that could not be verified; null: none
};

sound_parts find_sound_parts(audio_kind kind, std::string_view file);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/sound_parts.ipp>
#endif
