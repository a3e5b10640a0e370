// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/decode/detail/audio_head.hpp>

namespace millrace::detail {

/// Whether a header of MPEG audio, layer III, stands at the start (ISO 11172-3, 2.4.1.3).
inline bool begins_mp3_frame(std::string_view file) noexcept {
  if (file.size() < 4) return false;
  const auto b = [file](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(file[i])); };
  const bool synchronised = b(0) == 0xff && (b(1) & 0xe0) == 0xe0;
  const bool layer_three = (b(1) >> 1 & 3) == 1 && (b(1) >> 3 & 3) != 1;
  const unsigned bitrate = b(2) >> 4;
  return synchronised && layer_three && bitrate != 0 && bitrate != 15 && (b(2) >> 2 & 3) != 3;
}

MILLRACE_INLINE audio_kind audio_kind_of(std::string_view file) noexcept {
  const std::string_view form = file.size() < 12 ? std::string_view() : file.substr(8, 4);
  if (file.starts_with("RIFF") && form == "WAVE") return audio_kind::wav;
  if (file.starts_with("FORM") && (form == "AIFF" || form == "AIFC")) return audio_kind::aiff;
  if (file.starts_with("fLaC")) return audio_kind::flac;
  if (file.starts_with("OggS")) return audio_kind::ogg;
  if (file.starts_with("ID3") || begins_mp3_frame(file)) return audio_kind::mp3;
  return audio_kind::unknown;
}

/// Walks the chunks of a RIFF or an AIFF up to the one named `data`.
inline bool chunk_cut_short(std::string_view file, std::string_view data, bool big_endian) noexcept {
  for (std::size_t at = 12; at + 8 <= file.size();) {
    std::uint32_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      size = size << 8 | static_cast<unsigned char>(file[at + 4 + (big_endian ? i : 3 - i)]);
    }
    const std::size_t left = file.size() - at - 8;
    // 0 and all ones: written as a stream by who did not know the length.
    if (file.substr(at, 4) == data) return size > left && size != 0xffffffff;
    if (size > left) return false;  // without data at all: libsndfile says so
    at += 8 + std::size_t(size) + size % 2;
  }
  return false;
}

/// Whether a page that says that it is the last one ends where the file does (RFC 3533, section 6).
inline bool ogg_cut_short(std::string_view file) noexcept {
  constexpr std::size_t head = 27;
  constexpr std::size_t largest_page = head + 255 + 255 * 255;
  std::size_t at = file.size();
  while (at > 0 && (at = file.rfind("OggS", at - 1)) != std::string_view::npos && file.size() - at <= largest_page) {
    const std::string_view page = file.substr(at);
    if (page.size() < head) continue;
    const std::size_t segments = static_cast<unsigned char>(page[26]);
    if (page.size() < head + segments) continue;
    std::size_t size = head + segments;
    for (const char c : page.substr(head, segments)) size += static_cast<unsigned char>(c);
    if (size == page.size()) return (static_cast<unsigned char>(page[5]) & 4) == 0;
  }
  return true;
}

MILLRACE_INLINE bool audio_cut_short(audio_kind kind, std::string_view file) noexcept {
  switch (kind) {
    case audio_kind::wav:
      return chunk_cut_short(file, "data", false);
    case audio_kind::aiff:
      return chunk_cut_short(file, "SSND", true);
    case audio_kind::ogg:
      return ogg_cut_short(file);
    default:
      return false;
  }
}

}  // namespace millrace::detail
