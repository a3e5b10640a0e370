// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace::detail {

enum class audio_kind : std::uint8_t { unknown, wav, flac, ogg, mp3, aiff };

/// What a file is by its first bytes. `wav` is RIFF alone, not its rare relatives.
audio_kind audio_kind_of(std::string_view file) noexcept;

/// Whether the end of a WAV, an AIFF or an Ogg is missing, as the lengths in it have it: libsndfile takes what there
/// is. FLAC and MP3 have counts of their frames.
bool audio_cut_short(audio_kind kind, std::string_view file) noexcept;

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/impl/audio_head.ipp>
#endif
