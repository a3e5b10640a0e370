// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/decode/detail/sound_parts.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::size_t id3_size(std::string_view text) noexcept {
  std::size_t size = 0;
  while (size + 10 <= text.size() && text.substr(size, 3) == "ID3") {
    std::size_t body = 0;
    for (std::size_t i = 6; i < 10; ++i) body = body << 7 | (static_cast<unsigned char>(text[size + i]) & 0x7f);
    const bool footer = (static_cast<unsigned char>(text[size + 5]) & 0x10) != 0;
    size += 10 + body + (footer ? 10 : 0);
  }
  return size;
}

MILLRACE_INLINE audio_kind audio_kind_of(std::string_view file) noexcept {
  const bool tagged = file.starts_with("ID3");
  if (tagged) {
    const std::size_t tags = id3_size(file);
    file = tags < file.size() ? file.substr(tags) : std::string_view();
  }
  const std::string_view form = file.size() < 12 ? std::string_view() : file.substr(8, 4);
  const bool riff = file.starts_with("RIFF") || file.starts_with("RIFX") || file.starts_with("RF64");
  if (riff && form == "WAVE") return audio_kind::wav;
  if (file.starts_with("FORM") && (form == "AIFF" || form == "AIFC")) return audio_kind::aiff;
  if (file.starts_with("fLaC")) return audio_kind::flac;
  if (file.starts_with("OggS")) return audio_kind::ogg;
  if (file.size() >= 24 && (file.starts_with("\x2esnd") || file.starts_with("dns."))) return audio_kind::au;
  if (file.starts_with(std::string_view("caff\0\1", 6))) return audio_kind::caf;
  constexpr std::string_view w64("riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\0\0", 16);
  if (file.size() >= 40 && file.starts_with(w64) && file.substr(24, 4) == "wave") return audio_kind::w64;
  return tagged || mpeg_frame::at(file, 0) ? audio_kind::mp3 : audio_kind::unknown;
}

MILLRACE_INLINE std::optional<mpeg_frame> mpeg_frame::at(std::string_view file, std::size_t place) noexcept {
  if (place > file.size() || file.size() - place < 4) return std::nullopt;
  const auto b = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(file[place + i])); };
  if (b(0) != 0xff || (b(1) & 0xe0) != 0xe0 || (b(1) >> 1 & 3) != 1) return std::nullopt;
  const unsigned version = b(1) >> 3 & 3;  // 0: 2.5, 2: 2, 3: 1
  const unsigned bitrate = b(2) >> 4;
  const unsigned rate = b(2) >> 2 & 3;
  if (version == 1 || bitrate == 0 || bitrate == 15 || rate == 3) return std::nullopt;
  constexpr std::uint16_t first[] = {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320};
  constexpr std::uint16_t second[] = {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160};
  constexpr int rates[] = {44100, 48000, 32000};
  mpeg_frame f;
  f.first_version = version == 3;
  f.mono = b(3) >> 6 == 3;
  f.rate = rates[rate] / (version == 3 ? 1 : version == 2 ? 2 : 4);
  const unsigned kilobits = f.first_version ? first[bitrate] : second[bitrate];
  f.size = (f.first_version ? 144u : 72u) * 1000u * kilobits / static_cast<unsigned>(f.rate) + (b(2) >> 1 & 1);
  return f;
}

MILLRACE_INLINE std::optional<mpeg_header> mpeg_header::of(std::string_view file, std::size_t place,
                                                           const mpeg_frame& frame) noexcept {
  const std::string_view text = file.substr(place, frame.size);
  const auto number = [&](std::size_t at) -> std::optional<std::uint64_t> {
    if (at + 4 > text.size()) return std::nullopt;
    return sound_number(text, at, 4, true);
  };
  constexpr std::size_t vbri = 36;
  mpeg_header h;
  if (text.substr(std::min(vbri, text.size()), 4) == "VBRI") {  // Fraunhofer's
    h.bytes = number(vbri + 10);
    h.frames = number(vbri + 14);
    return h;
  }
  std::size_t at = std::min(frame.side_end(), text.size());
  const std::string_view name = text.substr(at, 4);
  if (name != "Xing" && name != "Info") return std::nullopt;
  const std::uint64_t has = number(at + 4).value_or(0);
  const std::string_view side = text.substr(4, at - 4);
  at += 8;
  if ((has & 1) != 0) h.frames = number(at);
  const std::size_t frames_at = place + at;
  at += (has & 1) != 0 ? 4 : 0;
  if ((has & 2) != 0) h.bytes = number(at);
  at += ((has & 2) != 0 ? 4u : 0u) + ((has & 4) != 0 ? 100u : 0u) + ((has & 8) != 0 ? 4u : 0u);
  // libmpg123 takes a frame with side information for sound.
  const bool quiet = std::all_of(side.begin(), side.end(), [](char c) { return c == 0; });
  if (h.frames && quiet && at < text.size() && text[at] != 0) h.frames_at = frames_at;
  return h;
}

MILLRACE_INLINE std::string mpeg_lead_in(std::string_view first, const mpeg_frame& frame, std::uint64_t count) {
  std::string header(first.substr(0, 4));
  const int bitrate = frame.first_version ? 9 : 8;  // 128 and 64 kilobits a second: room enough at every rate
  header[1] = static_cast<char>(header[1] | 1);     // without a checksum
  header[2] = static_cast<char>((static_cast<unsigned char>(header[2]) & 0x0c) | bitrate << 4);
  const std::size_t size = mpeg_frame::at(header, 0)->size;
  // libmpg123 leaves out the 529 values by which its filters are late. A silent frame is put before the others, and the
  // tag (LAME's: 12 bits for the values before the sound, 12 for those after it) marks it as one to leave out.
  constexpr unsigned late = 529;
  const unsigned before = (frame.first_version ? 1152 : 576) - late;
  const auto put = [](std::string& text, std::uint64_t value, int bytes) {
    while (bytes-- > 0) text += static_cast<char>(value >> 8 * bytes & 0xff);
  };
  std::string text = header;
  text.resize(frame.side_end());
  text += std::string_view("Info\0\0\0\1", 8);
  put(text, count + 1, 4);
  text += std::string_view("millrace\0", 9);
  text.resize(text.size() + 12);
  put(text, before << 12 | late, 3);
  text.resize(size);
  text += header;
  text.resize(2 * size);
  return text;
}

MILLRACE_INLINE std::size_t mpeg_tag_size(std::string_view file, std::size_t place) noexcept {
  const std::string_view rest = file.substr(place);
  if (rest.starts_with("ID3")) return std::min(id3_size(rest), rest.size());
  if (rest.starts_with("TAG+") && rest.size() >= 227) return 227;
  if (rest.starts_with("TAG") && rest.size() >= 128) return 128;
  if (rest.starts_with("APETAGEX") && rest.size() >= 32) {  // the size: of the items and the footer
    const bool header = (static_cast<unsigned char>(rest[23]) & 0x20) != 0;
    const std::uint64_t size = header ? 32 + sound_number(rest, 12, 4, false) : 32;
    return static_cast<std::size_t>(std::min<std::uint64_t>(size, rest.size()));
  }
  if (rest.starts_with("LYRICSBEGIN")) {
    for (const std::string_view end : {"LYRICS200", "LYRICSEND"}) {
      if (const std::size_t at = rest.find(end); at != std::string_view::npos) return at + end.size();
    }
  }
  return std::min(rest.find_first_not_of('\0'), rest.size());
}

MILLRACE_INLINE std::size_t find_mpeg_frame(std::string_view file, std::size_t place, const mpeg_frame* like) noexcept {
  for (; (place = file.find('\xff', place)) != std::string_view::npos; ++place) {
    const std::optional<mpeg_frame> found = mpeg_frame::at(file, place);
    if (!found || (like != nullptr && !found->same_stream(*like)) || found->size > file.size() - place) continue;
    const std::size_t end = place + found->size;
    const std::optional<mpeg_frame> next = mpeg_frame::at(file, end);
    if (file.size() - end < 4 || (next && next->same_stream(*found)) || mpeg_tag_size(file, end) != 0) return place;
  }
  return std::string_view::npos;
}

inline void put_sound_number(std::string& text, std::size_t at, std::size_t size, bool big, std::uint64_t value) {
  for (std::size_t i = 0; i < size; ++i) text[at + (big ? size - 1 - i : i)] = static_cast<char>(value >> 8 * i & 0xff);
}

/// True if a length, for which there is not enough data, is one that programs write that do not know it, as pipes do
/// not: all ones (ffmpeg, AU), 2^31 and a little less (arecord 0x80000000, SoX 0x7ffff000, GStreamer 0x7fff0000,
/// rounded to frames and less headers), SoX's 0x7f000000 of AIFF, 0xffffffff less headers; of 64 bits, half the range
/// and more.
inline bool is_unknown_length(std::uint64_t size) noexcept {
  const auto near = [size](std::uint64_t most, std::uint64_t below) { return size + below >= most && size <= most; };
  return near(0x80000040, 0x10040) || near(0xffffffff, 0xffff) || near(0x7f000040, 0x10040) || size >= 1ull << 62;
}
inline constexpr const char* more_than_said = "it has more frames than its header says: all are taken";
inline constexpr const char* unknown_length_taken =
    "its header does not say how much there is: all that follows is taken, and where that was cut is not known";

/// Each costs a start of libsndfile.
inline constexpr std::size_t most_sound_parts = 10000;

/// How chunks stand in a file: name, size and body, one after the other.
class chunk_format {
 public:
  std::size_t first;          ///< offset of the first
  std::size_t name;           ///< how long a name is
  std::size_t size;           ///< how long a size is
  bool big_endian;
  bool with_head;             ///< a size counts name and size, too
  std::size_t aligned;        ///< a chunk's end is
  std::string_view data;      ///< the name of the one with the sound, or how it begins

  std::size_t head() const noexcept { return name + size; }
  /// The size of the body of the chunk at `at`.
  std::uint64_t body(std::string_view file, std::size_t at) const noexcept {
    const std::uint64_t n = sound_number(file, at + name, size, big_endian);
    return !with_head ? n : n < head() ? 0 : n - head();
  }
  std::size_t next(std::size_t at, std::size_t body_size) const noexcept {
    return at + (head() + body_size + aligned - 1) / aligned * aligned;
  }
  /// True if there are only chunks from there to the end.
  bool chunks_from(std::string_view file, std::size_t at) const noexcept {
    while (at + head() <= file.size()) {
      for (const char c : file.substr(at, 4)) {
        if (c < ' ' || c > '~') return false;
      }
      const std::uint64_t n = body(file, at);
      if (n > file.size() - at - head()) return false;
      at = next(at, static_cast<std::size_t>(n));
    }
    return at >= file.size();
  }
};

/// How many frames an AIFF's data are, by its chunk COMM at `common`; 0: of an encoding in which that is not known.
inline std::uint64_t aiff_frames(std::string_view file, std::size_t common, std::uint64_t data) {
  constexpr std::size_t encoding = 18;  // of AIFC
  if (sound_number(file, common - 6, 4, true) < encoding || file.size() < common + 24) return 0;
  if (file.substr(8, 4) == "AIFC") {
    const std::string_view is = file.substr(common - 2 + encoding, 4);
    constexpr std::string_view plain[] = {"NONE", "sowt", "twos", "raw ", "fl32", "FL32", "fl64", "FL64"};
    if (std::find(std::begin(plain), std::end(plain), is) == std::end(plain)) return 0;
  }
  const std::uint64_t channels = sound_number(file, common - 2, 2, true);
  const std::uint64_t bits = sound_number(file, common + 4, 2, true);
  const std::uint64_t frame = channels * ((bits + 7) / 8);
  return frame == 0 ? 0 : data / frame;
}

/// One WAV, AIFF, CAF or W64, which begins at the start of the file. Returns where it ends: the next one may follow.
inline std::size_t find_chunked(const chunk_format& f, bool rf64, std::string_view file, sound_parts& out) {
  constexpr std::size_t none = 0;
  std::size_t long_size = none;  // of RF64: where the size of the data is
  std::size_t count = none;      // of AIFF: where the number of frames is
  std::size_t data = none;
  std::size_t end = file.size();
  bool unknown = false;
  sound_part part;
  for (std::size_t at = f.first; at + f.head() <= file.size();) {
    const std::string_view name = file.substr(at, 4);
    const std::size_t left = file.size() - at - f.head();
    const std::string_view form = left < 4 ? std::string_view() : file.substr(at + f.head(), 4);
    if (data != none && f.name == 4 && (form == "WAVE" || form == "AIFF" || form == "AIFC") &&
        (name == "RIFF" || name == "RIFX" || name == "RF64" || name == "FORM")) {
      end = at;
      break;
    }
    std::uint64_t size = f.body(file, at);
    if (name == "ds64" && rf64 && left >= 16) long_size = at + f.head() + 8;
    if (name == "COMM" && left >= 8) count = at + f.head() + 2;
    if (name == f.data && data != none) {
      out.fault = "in two pieces: a second chunk of data is at byte " + std::to_string(at);
      break;
    }
    if (name == f.data) {
      data = at;
      if (long_size != none) size = sound_number(file, long_size, 8, false);
      const bool empty = size == 0 && left != 0 && !f.chunks_from(file, at + f.head());
      unknown = empty || (size > left && is_unknown_length(size + (f.with_head ? f.head() : 0)));
      if (!unknown && size > left) out.fault = "cut short";
      if (unknown || size > left) break;
    } else if (size > left) {
      break;
    }
    at = f.next(at, static_cast<std::size_t>(size));
    if (name == f.data && at < file.size() && !f.chunks_from(file, at)) {
      const std::string_view rest = file.substr(at);
      const std::string_view next = rest.substr(0, 4);
      if (next == "RIFF" || next == "RIFX" || next == "RF64" || next == "FORM") continue;  // of an unknown length
      if (rest.find_first_not_of('\0') != std::string_view::npos) {
        out.guess = "what follows its data is no chunk, and left out";
      }
      break;
    }
  }
  if (data == none && out.fault.empty()) out.fault = "cut short: it ends before its data";
  if (unknown) {
    const std::size_t body = data + f.head();
    const std::uint64_t left = file.size() - body;
    part.head = file.substr(0, body);
    if (long_size != none) put_sound_number(part.head, long_size, 8, false, left);
    const std::uint64_t size = left + (f.with_head ? f.head() : 0);
    if (long_size == none) put_sound_number(part.head, data + f.name, f.size, f.big_endian, size);
    out.guess = unknown_length_taken;
  }
  // libsndfile takes no more frames than are counted there.
  const bool counted = f.data == "SSND" && count != none && count < data;
  if (counted && file.size() - data > f.head() + 8) {
    const std::uint64_t said = sound_number(file, count, 4, true);
    const std::uint64_t size = unknown ? 0 : std::min<std::uint64_t>(f.body(file, data), end - data - f.head());
    const std::uint64_t offset = sound_number(file, data + f.head(), 4, true) + 8;
    const bool more = said != 0 && size > offset && aiff_frames(file, count, size - offset) > said;
    if (unknown || said == 0 || more) {
      if (part.head.empty()) part.head = file.substr(0, data);
      put_sound_number(part.head, count, 4, true, 0xffffffff);
      out.guess = more && !unknown ? more_than_said : unknown_length_taken;
    }
  }
  part.body = file.substr(part.head.size(), end - part.head.size());
  out.parts.push_back(std::move(part));
  return end;
}

inline void find_chunked_parts(audio_kind kind, std::string_view file, sound_parts& out) {
  while (!file.empty() && out.parts.size() <= most_sound_parts) {
    const bool big = file.starts_with("RIFX");
    const chunk_format f = kind == audio_kind::wav    ? chunk_format{12, 4, 4, big, false, 2, "data"}
                           : kind == audio_kind::aiff ? chunk_format{12, 4, 4, true, false, 2, "SSND"}
                           : kind == audio_kind::caf  ? chunk_format{8, 4, 8, true, false, 1, "data"}
                                                      : chunk_format{40, 16, 8, false, true, 8, "data"};
    file.remove_prefix(find_chunked(f, file.starts_with("RF64"), file, out));
  }
}

/// AU: one header, then the sound.
inline void find_au_part(std::string_view file, sound_parts& out) {
  const bool big = file.starts_with('.');
  const std::uint64_t begin = sound_number(file, 4, 4, big);
  const std::uint64_t size = sound_number(file, 8, 4, big);
  const std::uint64_t left = begin < file.size() ? file.size() - begin : 0;
  sound_part part;
  if ((size == 0 && left != 0) || (size > left && is_unknown_length(size))) {
    part.head = file.substr(0, 24);
    put_sound_number(part.head, 8, 4, big, 0xffffffff);
    out.guess = unknown_length_taken;
  } else if (size > left) {
    out.fault = "cut short";
  } else if (size != 0 && file.find_first_not_of('\0', static_cast<std::size_t>(begin + size)) != file.npos) {
    out.guess = "what follows its data is left out";
  }
  part.body = file.substr(part.head.size());
  out.parts.push_back(std::move(part));
}

/// The header of a FLAC's frame (RFC 9639).
class flac_frame {
 public:
  std::uint64_t first = 0;  ///< its number, or of its first value if blocks differ in length
  std::uint64_t block = 0;  ///< values of each channel
  bool varies = false;

  static std::optional<flac_frame> at(std::string_view file, std::size_t place) {
    const auto byte = [&](std::size_t i) {
      return place + i < file.size() ? static_cast<unsigned char>(file[place + i]) : 0U;
    };
    if (byte(0) != 0xff || (byte(1) & 0xfe) != 0xf8 || (byte(3) & 1) != 0 || byte(3) >> 4 > 10) return std::nullopt;
    const unsigned block = byte(2) >> 4;
    const unsigned rate = byte(2) & 15;
    if (block == 0 || rate == 15) return std::nullopt;
    flac_frame made;
    made.varies = (byte(1) & 1) != 0;
    std::size_t size = 4;
    unsigned more = 0;  // bytes of the number, as UTF-8 has it
    for (unsigned bit = 0x80; (byte(size) & bit) != 0 && bit > 1; bit >>= 1) ++more;
    if (more == 1) return std::nullopt;
    made.first = byte(size) & (more == 0 ? 0x7fU : 0x7fU >> more);
    for (++size; more > 1; --more, ++size) {
      if ((byte(size) & 0xc0) != 0x80) return std::nullopt;
      made.first = made.first << 6 | (byte(size) & 0x3f);
    }
    made.block = block == 1 ? 192 : block < 6 ? 576U << (block - 2) : block < 8 ? 0 : 256U << (block - 8);
    for (unsigned left = block == 6 ? 1 : block == 7 ? 2 : 0; left > 0; --left) {
      made.block = made.block << 8 | byte(size++);
    }
    if (block == 6 || block == 7) ++made.block;
    size += rate == 12 ? 1 : rate > 12 ? 2 : 0;
    if (size >= file.size() - place) return std::nullopt;
    unsigned crc = 0;
    for (std::size_t i = 0; i < size; ++i) {
      crc ^= byte(i);
      for (int bit = 0; bit < 8; ++bit) crc = (crc << 1 ^ ((crc >> 7 & 1) * 0x07U)) & 0xff;
    }
    if (crc != byte(size)) return std::nullopt;
    return made;
  }
};

/// How many values of each channel a FLAC has, by its last frame, if these are more than `said`; else 0. `sound`:
/// the place of its first frame.
inline std::uint64_t flac_values_beyond(std::string_view file, std::size_t sound, std::uint64_t said) {
  constexpr std::size_t most_frame = 1 << 20;
  if (file.size() >= sound + 128 && file.substr(file.size() - 128, 3) == "TAG") file.remove_suffix(128);
  const std::size_t least = std::max(sound, file.size() - std::min(file.size(), most_frame));
  for (std::size_t at = file.size(); at-- > least;) {
    if (file[at] != '\xff') continue;
    const std::optional<flac_frame> last = flac_frame::at(file, at);
    if (!last) continue;
    const std::uint64_t before = last->varies ? last->first : last->first * sound_number(file, 10, 2, true);
    const std::uint64_t values = before + last->block;
    if (values == said) return 0;
    if (values < said) continue;
    unsigned crc = 0;  // of a frame with the checksum at its end: 0
    for (const char c : file.substr(at)) {
      crc ^= static_cast<unsigned>(static_cast<unsigned char>(c)) << 8;
      for (int bit = 0; bit < 8; ++bit) crc = (crc << 1 ^ ((crc >> 15 & 1) * 0x8005U)) & 0xffff;
    }
    if (crc == 0) return values;
  }
  return 0;
}

/// FLAC: whole files, one after the other; tags may stand between them.
inline void find_flac_parts(std::string_view file, sound_parts& out) {
  std::size_t begin = 0;
  for (std::size_t at = 0;;) {
    // STREAMINFO: 36 bits that say how many values there are.
    if (file.size() >= at + 26 && (file[at + 21] & 15) == 0 && sound_number(file, at + 22, 4, true) == 0) {
      out.guess = unknown_length_taken;
    }
    std::size_t sound = at + 4;
    for (bool last = false; !last && sound + 4 <= file.size();) {  // metadata, which may hold anything
      last = (static_cast<unsigned char>(file[sound]) & 0x80) != 0;
      sound += 4 + static_cast<std::size_t>(sound_number(file, sound + 1, 3, true));
    }
    const std::size_t sound_of_part = std::min(sound, file.size()) - begin;
    at = begin + sound_of_part;
    const auto begins_one = [file](std::size_t i) {
      constexpr std::string_view length("\0\0\x22", 3);  // of the block that comes first
      return file.size() - i >= 8 && (file[i + 4] & 0x7f) == 0 && file.substr(i + 5, 3) == length;
    };
    at = file.find("fLaC", at);
    while (at != std::string_view::npos && !begins_one(at)) at = file.find("fLaC", at + 1);
    sound_part part;
    part.body = file.substr(begin, at == std::string_view::npos ? at : at - begin);
    if (part.body.size() >= 26) {
      const auto low = static_cast<unsigned char>(part.body[21]);
      const std::uint64_t said = static_cast<std::uint64_t>(low & 15U) << 32 | sound_number(part.body, 22, 4, true);
      if (const std::uint64_t values = said == 0 ? 0 : flac_values_beyond(part.body, sound_of_part, said)) {
        part.head = part.body.substr(0, 26);
        put_sound_number(part.head, 22, 4, true, values & 0xffffffff);
        part.head[21] = static_cast<char>((low & 0xf0U) | (values >> 32 & 15U));
        part.body.remove_prefix(26);
        out.guess = more_than_said;
      }
    }
    out.parts.push_back(std::move(part));
    if (at == std::string_view::npos) return;
    begin = at;
  }
}

/// Marks the page as the last one of its stream.
inline void mark_ogg_end(std::string& file, std::size_t page, std::size_t size) noexcept {
  file[page + 5] = static_cast<char>(file[page + 5] | 4);
  put_sound_number(file, page + 22, 4, false, 0);
  std::uint32_t crc = 0;  // from the highest bit on
  for (std::size_t i = page; i < page + size; ++i) {
    crc ^= static_cast<std::uint32_t>(static_cast<unsigned char>(file[i])) << 24;
    for (int bit = 0; bit < 8; ++bit) crc = crc << 1 ^ ((crc >> 31) * 0x04c11db7u);
  }
  put_sound_number(file, page + 22, 4, false, crc);
}

/// Ogg (RFC 3533): links, each of which begins with pages that say so.
inline void find_ogg_parts(std::string_view file, sound_parts& out) {
  constexpr std::size_t head = 27;
  constexpr unsigned begins = 2, ends = 4;
  const auto byte = [file](std::size_t i) { return static_cast<unsigned char>(file[i]); };
  const auto damaged = [&out](std::size_t from, std::size_t to) {
    if (!out.fault.empty()) return;
    out.fault = "damaged: bytes " + std::to_string(from) + " to " + std::to_string(to) + " are no page of an Ogg";
  };
  std::size_t link = 0;
  std::size_t last = 0;  // the last page, and whether its packets go on in another one
  std::size_t last_size = 0;
  bool open = false;
  const auto end_link = [&](std::size_t end) {
    const bool marked = (byte(last + 5) & ends) != 0;
    const std::uint64_t position = sound_number(file, last + 6, 8, false);
    if (!marked && (open || position == 0 || position == ~0ull) && out.fault.empty()) out.fault = "cut short";
    if (!marked && out.guess == nullptr) {
      out.guess = "it has no mark at its end: whether it was cut between two pages is not known";
    }
    sound_part part;
    part.body = file.substr(link, end - link);
    if (!marked) {  // libsndfile would have it for an Opus
      part.head = part.body;
      mark_ogg_end(part.head, last - link, last_size);
      part.body = std::string_view();
    }
    out.parts.push_back(std::move(part));
  };
  bool any = false;
  bool head_pages = false;
  std::size_t at = 0;
  while (at < file.size()) {
    if (file.substr(at, 4) != "OggS") {
      const std::size_t found = file.find("OggS", at);
      const std::string_view between = file.substr(at, found == std::string_view::npos ? found : found - at);
      if (std::string_view("OggS").starts_with(between)) {
        out.fault = "cut short";
      } else if (between.find_first_not_of('\0') != std::string_view::npos) {
        damaged(at, at + between.size());
      }
      if (found == std::string_view::npos) break;
      at = found;
    }
    const std::size_t left = file.size() - at;
    std::size_t size = head;
    if (left >= head) size += byte(at + 26);
    if (left >= size && left >= head) {
      const std::size_t segments = byte(at + 26);
      for (std::size_t i = 0; i < segments; ++i) size += byte(at + head + i);
    }
    if (left < size) {
      out.fault = "cut short";
      break;
    }
    const bool first = (byte(at + 5) & begins) != 0;
    if (first && any && !head_pages) {
      end_link(at);
      link = at;
    }
    head_pages = first;
    any = true;
    last = at;
    last_size = size;
    open = byte(at + 26) != 0 && byte(at + head + byte(at + 26) - 1) == 255;
    at += size;
  }
  if (any) {
    end_link(file.size());
  } else {
    sound_part part;
    part.body = file;
    out.parts.push_back(std::move(part));
  }
}

/// MP3: frames are counted. A part ends where another recording begins: at the frame that an encoder puts before one,
/// or where rate or channels change. Tags between frames are left out.
class mpeg_parts {
 public:
  mpeg_parts(std::string_view file, sound_parts& out) noexcept : file_(file), out_(out) {}

  void find() {
    leave_out_end();
    std::size_t at = 0;
    while (at < file_.size() && !mpeg_frame::at(file_, at)) {
      const std::size_t tag = mpeg_tag_size(file_, at);
      if (tag == 0) break;
      at += tag;
    }
    std::size_t first = find_mpeg_frame(file_, at, nullptr);
    const std::optional<mpeg_frame> begun = mpeg_frame::at(file_, at);
    if (first == none) {
      return fault(begun || at >= file_.size() ? "cut short" : "without a frame of MPEG audio, layer III");
    }
    if (begun && begun->same_stream(*mpeg_frame::at(file_, first))) first = at;  // damage after that one
    if (first != at) out_.guess = "bytes before its first frame are no tag, and left out";
    at = first;
    while (at < file_.size() && out_.parts.size() <= most_sound_parts) {
      const std::optional<mpeg_frame> frame = mpeg_frame::at(file_, at);
      const bool same = frame && (begin_ == none || frame->same_stream(stream_));
      if (same && frame->size > file_.size() - at) {
        fault("cut short");
        break;
      }
      if (same || (frame && find_mpeg_frame(file_, at, nullptr) == at)) {
        take(at, *frame);
        at += frame->size;
      } else {
        at = pass_over(at);
      }
    }
    end_part();
    if (out_.parts.empty()) fault("without a frame of sound");
  }

 private:
  static constexpr std::size_t none = std::string_view::npos;

  void fault(std::string what) {
    if (out_.fault.empty()) out_.fault = std::move(what);
  }

  /// Tags at the end, which may begin with no mark.
  void leave_out_end() noexcept {
    if (file_.size() >= 128 && file_.substr(file_.size() - 128, 3) == "TAG") file_.remove_suffix(128);
    if (file_.size() < 32 || file_.substr(file_.size() - 32, 8) != "APETAGEX") return;
    const std::string_view footer = file_.substr(file_.size() - 32);
    const std::uint64_t head = (static_cast<unsigned char>(footer[23]) & 0x80) != 0 ? 32 : 0;
    const std::uint64_t size = sound_number(footer, 12, 4, false) + head;
    if (size <= file_.size()) file_.remove_suffix(static_cast<std::size_t>(size));
  }

  void take(std::size_t at, const mpeg_frame& frame) {
    const std::optional<mpeg_header> header = mpeg_header::of(file_, at, frame);
    if (begin_ != none && (header || !frame.same_stream(stream_))) end_part();
    if (begin_ == none) {
      start_ = begin_ = at;
      stream_ = frame;
      header_ = header;
      header_size_ = header ? frame.size : 0;
      count_ = 0;
      bytes_ = 0;
      head_.clear();
    } else if (at != end_) {
      head_ += file_.substr(begin_, end_ - begin_);  // the bytes between are left out
      begin_ = at;
    }
    if (!header) ++count_;
    bytes_ += frame.size;
    end_ = at + frame.size;
  }

  /// Tags, zeros and damage; returns where frames go on.
  std::size_t pass_over(std::size_t at) {
    if (const std::size_t tag = mpeg_tag_size(file_, at); tag != 0) return at + tag;
    std::size_t next = find_mpeg_frame(file_, at, begin_ != none ? &stream_ : nullptr);
    next = std::min(next, file_.size());
    if (next == file_.size() && next - at < 4 && file_[at] == '\xff') {
      fault("cut short");
    } else {
      fault("damaged: bytes " + std::to_string(at) + " to " + std::to_string(next) + " are no frame of MPEG audio");
    }
    return next;
  }

  void end_part() {
    if (begin_ == none) return;
    sound_part part;
    const std::optional<std::uint64_t> said = header_ ? header_->frames : std::nullopt;
    // Some encoders count their header as well, which can be believed only of those that count bytes, too.
    const bool itself = said && *said == count_ + 1 && header_->bytes && *header_->bytes == bytes_;
    if (said && *said > count_ && !itself) {
      fault("cut short: it says that it has " + std::to_string(*said) + " frames, and has " + std::to_string(count_));
    }
    if (said && *said < count_) out_.guess = more_than_said;
    if (header_ && header_->frames_at != 0) {
      if (head_.empty() && *said != count_) {
        head_ = file_.substr(begin_, header_size_);
        begin_ += header_size_;
      }
      if (!head_.empty()) put_sound_number(head_, header_->frames_at - start_, 4, true, count_);
      part.head = std::move(head_);
    } else {
      part.head = mpeg_lead_in(file_.substr(start_, 4), stream_, count_);
      if (head_.empty()) {
        begin_ += header_size_;
      } else {
        part.head += std::string_view(head_).substr(header_size_);
      }
    }
    part.body = file_.substr(begin_, end_ - begin_);
    head_.clear();
    begin_ = none;
    if (count_ != 0) out_.parts.push_back(std::move(part));
  }

  std::string_view file_;
  sound_parts& out_;
  // The part that is being read: its first byte, those from where on it is a piece of the file, and what precedes that.
  std::size_t start_ = 0;
  std::size_t begin_ = none;
  std::size_t end_ = 0;
  std::string head_;
  mpeg_frame stream_;
  std::optional<mpeg_header> header_;
  std::size_t header_size_ = 0;
  std::uint64_t count_ = 0;  // frames, without the header
  std::uint64_t bytes_ = 0;
};

MILLRACE_INLINE sound_parts find_sound_parts(audio_kind kind, std::string_view file) {
  sound_parts out;
  if (kind != audio_kind::mp3) file.remove_prefix(std::min(id3_size(file), file.size()));
  switch (kind) {
    case audio_kind::unknown:
      break;
    case audio_kind::wav:
    case audio_kind::aiff:
    case audio_kind::caf:
    case audio_kind::w64:
      find_chunked_parts(kind, file, out);
      break;
    case audio_kind::flac:
      find_flac_parts(file, out);
      break;
    case audio_kind::ogg:
      find_ogg_parts(file, out);
      break;
    case audio_kind::au:
      find_au_part(file, out);
      break;
    case audio_kind::mp3:
      mpeg_parts(file, out).find();
      break;
  }
  if (out.parts.size() > most_sound_parts) {
    out.fault = "made of more than " + std::to_string(most_sound_parts) + " recordings";
    out.parts.resize(most_sound_parts);
  }
  return out;
}

}  // namespace millrace::detail
