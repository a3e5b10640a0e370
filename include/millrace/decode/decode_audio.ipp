// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/decode/decode_audio.hpp>
#include <millrace/decode/detail/sound_parts.hpp>
#include <millrace/decode/parse_label.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

MILLRACE_INLINE MILLRACE_NOINLINE void say_several_recordings(const sample& s, const field& taken) {
  std::string recordings;
  for (const field& f : s.fields) {
    if (audio_kind_of(f.data.view()) == audio_kind::unknown) continue;
    recordings += (recordings.empty() ? "" : ", ") + f.extension;
  }
  say_first("several recordings",
            "several fields of the sample are recordings (" + recordings + "): the first in the archive, " +
                taken.extension + ", is taken here and in samples alike; audio_options::field names another",
            s.from.at(s.key));
}

}  // namespace detail

MILLRACE_INLINE std::size_t audio_reader::field_of(const sample& s) const {
  const std::string_view name = decoder_.options().field;
  if (!name.empty()) static_cast<void>(s[name]);  // throws if there is none
  std::string has;
  for (std::size_t i = 0; i < s.fields.size(); ++i) {
    const field& f = s.fields[i];
    const bool found = name.empty() ? detail::audio_kind_of(f.data.view()) != detail::audio_kind::unknown
                                    : f.extension == name;
    if (found) {
      const auto is_another = [](const field& other) {
        return detail::audio_kind_of(other.data.view()) != detail::audio_kind::unknown;
      };
      const auto after = s.fields.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      if (name.empty() && std::any_of(after, s.fields.end(), is_another)) detail::say_several_recordings(s, f);
      return i;
    }
    has += (has.empty() ? "" : ", ") + f.extension;
  }
  throw decode_error("no field of the sample is a WAV, FLAC, Ogg, MP3, AIFF, AU, CAF or W64 (it has: " + has + ")",
                     s.from.at(s.key));
}

MILLRACE_INLINE audio_sample audio_reader::operator()(sample s) const {
  const audio_options& o = decoder_.options();
  if (s.mark.padding) return audio_sample(std::move(s), audio(), std::nullopt, options_);
  const bool draws = o.crop == audio_crop::random && o.seconds > 0;
  const double place = draws ? s.random(purpose::augment).uniform() : 0;
  const std::size_t number = field_of(s);
  audio sound = decoder_(s.fields[number].data, place, s.from.at(s.key));
  std::optional<std::int64_t> label;
  if (!o.label.empty()) label = parse_label(s[o.label], s.from.at(s.key));
  s.fields.erase(s.fields.begin() + static_cast<std::ptrdiff_t>(number));
  return audio_sample(std::move(s), std::move(sound), label, options_);
}

MILLRACE_INLINE audio_sample audio_reader::in_place_of(const epoch_mark& mark) const {
  sample s;
  s.mark = mark;
  return audio_sample(std::move(s), audio(), std::nullopt, options_);
}

MILLRACE_INLINE void collate(const audio_sample& a, sample_writer& out) {
  out.key(a.of.key);
  if (a.of.from) out.tag(a.of.from);
  shape dims{static_cast<std::int64_t>(a.sound.rows())};
  if (a.how->channels != 1) dims.push_back(a.sound.channels);
  const tensor_view values(const_cast<void*>(a.sound.data()), a.sound.type, dims);  // it is read
  if (a.how->seconds > 0 && a.how->fill) {
    out.write("audio", values);
    out.write("audio_lengths", static_cast<std::int64_t>(a.sound.frames));
  } else {
    out.padded("audio", values, a.how->pad);
  }
  if (a.label) out.write("label", *a.label);
}

}  // namespace millrace
