// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sndfile.h>

#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

namespace examples {

/// A recording as a file of the given format of libsndfile, SF_FORMAT_FLAC | SF_FORMAT_PCM_16 for example: frame by
/// frame, in each the values of all channels, from -1 to 1. `compression`: from 0 to 1, of formats that can be more or
/// less compressed; below 0: libsndfile's own.
inline std::string encode_audio(std::span<const float> values, int channels, int rate, int format,
                                double compression = -1) {
  struct text_file {
    std::string text;
    sf_count_t at = 0;
  } file;
  SF_VIRTUAL_IO io = {};
  io.get_filelen = [](void* f) { return static_cast<sf_count_t>(static_cast<text_file*>(f)->text.size()); };
  io.seek = [](sf_count_t offset, int from, void* f) {
    auto& t = *static_cast<text_file*>(f);
    const sf_count_t base = from == SEEK_SET ? 0 : from == SEEK_CUR ? t.at : static_cast<sf_count_t>(t.text.size());
    return t.at = base + offset;
  };
  io.read = [](void* to, sf_count_t count, void* f) {
    auto& t = *static_cast<text_file*>(f);
    const std::size_t n = t.text.copy(static_cast<char*>(to), static_cast<std::size_t>(count),
                                      static_cast<std::size_t>(t.at));
    t.at += static_cast<sf_count_t>(n);
    return static_cast<sf_count_t>(n);
  };
  io.write = [](const void* from, sf_count_t count, void* f) {
    auto& t = *static_cast<text_file*>(f);
    const auto end = static_cast<std::size_t>(t.at + count);
    if (t.text.size() < end) t.text.resize(end);
    std::memcpy(t.text.data() + t.at, from, static_cast<std::size_t>(count));
    t.at += count;
    return count;
  };
  io.tell = [](void* f) { return static_cast<text_file*>(f)->at; };
  SF_INFO info = {};
  info.samplerate = rate;
  info.channels = channels;
  info.format = format;
  SNDFILE* const out = ::sf_open_virtual(&io, SFM_WRITE, &info, &file);
  if (out == nullptr) throw std::runtime_error(std::string("libsndfile: ") + ::sf_strerror(nullptr));
  if (compression >= 0) ::sf_command(out, SFC_SET_COMPRESSION_LEVEL, &compression, sizeof compression);
  ::sf_write_float(out, values.data(), static_cast<sf_count_t>(values.size()));
  ::sf_close(out);
  return file.text;
}

}  // namespace examples
