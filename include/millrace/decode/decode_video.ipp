// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/decode_video.hpp>
#include <millrace/decode/parse_label.hpp>
#include <millrace/flow/failure_policy.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void video_row_writer::operator()(const sample& s, const batch_row& row) const {
  const video_options& o = decoder_.options();
  const bool draws = o.start == clip_start::random || o.crop.random() || o.flip > 0;
  sample_rng numbers = draws ? s.random(purpose::augment) : sample_rng(0, 0, 0, 0, 0);
  const std::vector<decoded_clip> clips =
      decoder_.into(row.field(0), s.fields[detail::video_field_of(s, o.field, "video_options")].data, numbers,
                    s.from.at(s.key), detail::video_part_of(s, o.begin, o.end));
  auto times = row.values<double>("video_times").begin();
  auto lengths = row.values<std::int64_t>("video_lengths").begin();
  for (const decoded_clip& c : clips) {
    for (const double t : c.times) *times++ = t;
    *lengths++ = c.length;
  }
  if (!o.label.empty()) row.set("label", parse_label(s[o.label], s.from.at(s.key)));
  row.key(s.key);
  if (s.from) row.tag(s.from);
}

MILLRACE_INLINE batch_layout video_row_writer::layout(std::size_t samples) const {
  const video_options& o = decoder_.options();
  std::vector<batch_field> fields;
  fields.emplace_back("video", o.type, decoder_.dims());
  fields.emplace_back("video_times", dtype::f64, o.clips == 1 ? shape{o.frames} : shape{o.clips, o.frames});
  fields.emplace_back("video_lengths", dtype::i64, o.clips == 1 ? shape{} : shape{o.clips});
  if (!o.label.empty()) fields.emplace_back("label", dtype::i64);
  return batch_layout(samples, std::move(fields));
}

namespace detail {

MILLRACE_INLINE std::optional<video_span> video_part_of(const sample& s, std::string_view begin_name,
                                                        std::string_view end_name) {
  const bytes* const begin = begin_name.empty() ? nullptr : s.find(begin_name);
  const bytes* const end = end_name.empty() ? nullptr : s.find(end_name);
  if (begin == nullptr && end == nullptr) return std::nullopt;
  const auto seconds = [&](const bytes* data, std::string_view name) {
    double value = 0;
    if (data == nullptr || data->size() != sizeof value) {
      throw decode_error("the field " + std::string(name) + " is no time in seconds, 8 bytes of f64 " +
                             "(the options .begin and .end name the fields of a part)",
                         s.from.at(s.key));
    }
    std::memcpy(&value, data->data(), sizeof value);
    return value;
  };
  return video_span{seconds(begin, begin_name), seconds(end, end_name)};
}

MILLRACE_INLINE std::size_t video_field_of(const sample& s, std::string_view name, const char* options) {
  if (!name.empty()) static_cast<void>(s[name]);  // throws if there is none
  std::size_t taken = s.fields.size();
  std::string has, videos;
  for (std::size_t i = 0; i < s.fields.size(); ++i) {
    const field& f = s.fields[i];
    if (!name.empty() && f.extension == name) return i;
    has += (has.empty() ? "" : ", ") + f.extension;
    if (video_kind_of(f.data.view()) == video_kind::unknown) continue;
    if (taken == s.fields.size()) taken = i;
    videos += (videos.empty() ? "" : ", ") + f.extension;
  }
  if (taken == s.fields.size()) {
    throw decode_error("no field of the sample is an MP4, QuickTime or Matroska file (it has: " + has + ")",
                       s.from.at(s.key));
  }
  const std::string& first = s.fields[taken].extension;
  if (videos.size() != first.size()) {
    say_first("several videos",
              "several fields of the sample are videos (" + videos + "): the first in the archive, " + first +
                  ", is taken here and in samples alike; " + options + "::field names another",
              s.from.at(s.key));
  }
  return taken;
}

}  // namespace detail

MILLRACE_COROUTINE_BODY stream<encoded_video> decode_video_stage::operator()(async_generator<sample> source) && {
  return stream<encoded_video>(detail::encoded_samples(std::move(source), std::move(how_))).named("decode_video");
}

MILLRACE_COROUTINE_BODY stream<host_batch> batch_rows(async_generator<encoded_video>&& source, std::size_t samples,
                                                      const batch_options& options) {
  return detail::written_batches<encoded_video>(std::move(source), samples, options);
}

}  // namespace millrace::inline MILLRACE_ABI
