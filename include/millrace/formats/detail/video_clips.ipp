// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/formats/detail/video_clips.hpp>
#include <millrace/formats/video_shards.hpp>
#include <millrace/index/detail/little_endian.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

namespace clip_text {

inline void put(std::string& out, std::uint64_t value) {
  for (; value >= 128; value >>= 7) out += static_cast<char>(static_cast<unsigned char>(value | 128));
  out += static_cast<char>(static_cast<unsigned char>(value));
}
inline void put_signed(std::string& out, std::int64_t value) {
  put(out, static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
}

/// Bytes of the moof of a clip whose tracks have so many samples in all.
inline std::uint64_t moof_bytes(std::uint64_t samples, std::uint64_t tracks) noexcept {
  return 24 + tracks * 64 + 16 * samples;
}

/// The samples of a group, in a row of the same track.
inline void put_samples(std::string& out, const mp4_sample* first, std::size_t count, std::int64_t unit) {
  put(out, count);
  if (count == 0) return;
  put_signed(out, first->decode);
  for (std::size_t i = 0; i < count;) {
    std::size_t end = i + 1;
    while (end < count && first[end].duration == first[i].duration) ++end;
    put(out, end - i);
    put(out, first[i].duration / static_cast<std::uint64_t>(unit));
    i = end;
  }
  const bool alike = std::all_of(first, first + count, [&](const mp4_sample& s) { return s.shift == first->shift; });
  put(out, alike ? 0 : 1);
  for (std::size_t i = 0; i < (alike ? 1 : count); ++i) put_signed(out, first[i].shift / unit);
  for (std::size_t i = 0; i < count; ++i) put(out, first[i].size);
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < count;) {
    const std::uint64_t begin = first[i].offset;
    std::uint64_t after = begin;
    std::size_t end = i;
    for (; end < count && first[end].offset == after; ++end) after += first[end].size;
    put(out, end - i);
    put_signed(out, static_cast<std::int64_t>(begin - at));
    at = after;
    i = end;
  }
}

/// When groups of pictures are shown, in ticks of the whole file.
class group_times {
 public:
  std::vector<std::size_t> first;   ///< its first sample; and how many samples there are in all
  std::vector<std::int64_t> begin;  ///< when its first one is shown, or an earlier group's if that is later
  std::vector<std::int64_t> least;  ///< when the first one of all from here on is shown
  std::int64_t end = 0;             ///< when the last one of all has been shown

  group_times() = default;
  explicit group_times(const mp4_track& track) {
    const std::vector<mp4_sample>& all = track.samples;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i != 0 && !all[i].key) continue;
      first.push_back(i);
      const std::int64_t shown = track.presented(all[i]);
      begin.push_back(begin.empty() ? shown : std::max(begin.back(), shown));
    }
    first.push_back(all.size());
    least.resize(begin.size());
    std::int64_t now = INT64_MAX;
    for (std::size_t g = begin.size(); g-- > 0;) {
      for (std::size_t i = first[g]; i < first[g + 1]; ++i) {
        now = std::min(now, track.presented(all[i]));
        end = std::max(end, track.presented(all[i]) + static_cast<std::int64_t>(all[i].duration));
      }
      least[g] = now;
    }
    if (track.media_end != INT64_MAX) end = std::min(end, track.media_end - track.media_begin + track.delay);
  }
};

/// A clip: [begin, end) in ticks, and its groups.
class clip {
 public:
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::size_t first = 0;
  std::size_t last = 0;
};

/// The clips of a track.
inline std::vector<clip> cut(const mp4_track& track, const group_times& groups, const video_shards_options& options,
                             const where& object_end) {
  std::vector<clip> all;
  if (groups.begin.empty()) return all;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    if (all.size() >> 22 != 0 || all.size() + 2 > object_end.offset.value_or(0)) {
      throw decode_error("the options make more than " + std::to_string(all.size()) + " clips of it: too many",
                         object_end);
    }
    clip c;
    c.begin = begin;
    c.end = std::max(end, begin + 1);
    const auto later = std::upper_bound(groups.begin.begin(), groups.begin.end(), begin) - groups.begin.begin();
    c.first = static_cast<std::size_t>(std::max<std::ptrdiff_t>(later, 1) - 1);
    const auto beyond = std::lower_bound(groups.least.begin(), groups.least.end(), c.end) - groups.least.begin();
    c.last = std::max(static_cast<std::size_t>(beyond), c.first + 1);
    all.push_back(c);
  };
  if (options.frames == 0) {
    const double stride = options.stride != 0 ? options.stride : options.seconds;
    const auto ticks = [&](double seconds) {
      return static_cast<std::int64_t>(std::llround(std::min(seconds * track.timescale, 4e18)));
    };
    for (std::uint64_t k = 0;; ++k) {
      const std::int64_t begin = ticks(static_cast<double>(k) * stride);
      const std::int64_t end = ticks(static_cast<double>(k) * stride + options.seconds);
      if (begin >= groups.end || (end > groups.end && !options.partial)) return all;
      add(begin, std::min(end, groups.end));
    }
  }
  std::vector<std::int64_t> shown;
  for (const mp4_sample& s : track.samples) {
    if (s.shown() >= track.media_begin && s.shown() < track.media_end) shown.push_back(track.presented(s));
  }
  std::sort(shown.begin(), shown.end());
  const std::uint64_t stride = options.frame_stride != 0 ? options.frame_stride : options.frames;
  for (std::uint64_t at = 0; at < shown.size(); at += stride) {
    const std::uint64_t left = shown.size() - at;
    if (left < options.frames && !options.partial) break;
    add(shown[static_cast<std::size_t>(at)],
        left <= options.frames ? groups.end : shown[static_cast<std::size_t>(at + options.frames)]);
  }
  return all;
}

}  // namespace clip_text

/// The parts of a file that clips are cut of.
class video_clips::source {
 public:
  std::uint64_t container = 1;
  std::string init;
  const std::vector<mp4_track>& tracks;
  const clip_text::group_times& groups;
};

MILLRACE_INLINE std::string video_clips::write(const mp4_file& file, const video_shards_options& options,
                                               const where& end, std::vector<place>& places) {
  const clip_text::group_times groups(file.tracks().front());
  return write(source{1, file.init(), file.tracks(), groups}, options, end, places);
}

MILLRACE_INLINE std::string video_clips::write(const matroska_file& file, const video_shards_options& options,
                                               const where& end, std::vector<place>& places) {
  if (options.frames != 0) {
    throw decode_error(
        "clips of .frames need the times of all frames, and Cues of Matroska are of key frames: give .seconds, or make "
        "an MP4 file of it (ffmpeg -c copy)",
        where{end.object, 0, {}});
  }
  const std::vector<matroska_file::group>& all = file.groups();
  std::vector<mp4_track> tracks(file.track(1) != 0 ? 2 : 1);
  tracks[0].timescale = 1'000'000'000;
  for (std::size_t t = 0; t < tracks.size(); ++t) tracks[t].id = static_cast<std::uint32_t>(file.track(t));
  clip_text::group_times groups;
  groups.end = file.duration();
  const auto add = [&](std::uint64_t from, std::uint64_t to, std::uint64_t cluster) {
    if (to - from > INT32_MAX) {
      throw decode_error("a group of pictures has " + std::to_string(to - from) + " bytes: 2 GiB or more are too many",
                         where{end.object, from, {}});
    }
    mp4_sample s;
    s.offset = from;
    s.size = static_cast<std::uint32_t>(to - from);
    s.decode = static_cast<std::int64_t>(cluster);
    groups.first.push_back(tracks[0].samples.size());
    tracks[0].samples.push_back(s);
  };
  for (std::size_t g = 0; g < all.size(); ++g) {
    const bool last = g + 1 == all.size();
    add(all[g].begin, all[g].lead, all[g].cluster);
    add(all[g].lead, last ? file.groups_end() : all[g + 1].begin, 0);
    groups.begin.insert(groups.begin.end(), {all[g].shown, last ? INT64_MAX : all[g + 1].shown});
    groups.least.insert(groups.least.end(), {all[g].least, all[g].shown + 1});
  }
  groups.first.push_back(tracks[0].samples.size());
  for (std::size_t g = groups.least.size() - 1; g-- > 0;) {
    groups.least[g] = std::min(groups.least[g], groups.least[g + 1]);
  }
  return write(source{2, file.init(), tracks, groups}, options, end, places);
}

MILLRACE_INLINE std::string video_clips::write(const source& from, const video_shards_options& options,
                                               const where& end, std::vector<place>& places) {
  using namespace clip_text;
  const std::vector<mp4_track>& tracks = from.tracks;
  const group_times& groups = from.groups;
  const std::string& init = from.init;
  const mp4_track& pictures = tracks.front();
  const std::vector<clip> clips = cut(pictures, groups, options, end);
  const std::size_t count = groups.begin.size();
  std::string out;
  for (const std::uint64_t n : {from.container, std::uint64_t{init.size()}, std::uint64_t{pictures.timescale},
                                std::uint64_t{clips.size()}, std::uint64_t{count}, std::uint64_t{tracks.size()}}) {
    append_le(out, n, 4);
  }
  std::string samples;
  std::vector<std::uint64_t> begins;
  std::vector<std::uint64_t> bytes(count + 1);   // of the samples of the groups before
  std::vector<std::uint64_t> number(count + 1);  // and how many these are
  std::vector<std::uint64_t> lead_bytes(count);  // of the sound before a group
  std::vector<std::uint64_t> lead_number(count);
  std::vector<std::uint64_t> least(count, UINT64_MAX);
  std::vector<std::int64_t> units;
  std::vector<std::vector<std::size_t>> firsts;
  std::vector<std::vector<std::size_t>> leads;  // the first samples, with the sound before
  for (const mp4_track& t : tracks) {
    std::int64_t unit = 0;
    for (const mp4_sample& s : t.samples)
      unit = std::gcd(unit, std::gcd(std::int64_t{s.duration}, std::int64_t{s.shift}));
    units.push_back(unit > 0 && unit <= INT32_MAX ? unit : 1);
    append_le(out, t.id, 4);
    append_le(out, static_cast<std::uint64_t>(units.back()), 4);
    append_le(out, static_cast<std::uint64_t>(t.delay), 8);
    if (&t == &pictures) {
      firsts.push_back(groups.first);
      leads.push_back(groups.first);
      continue;
    }
    // Sound goes with the group that is shown when it is heard. A packet may begin before its group, and a decoder
    // needs those before it, of Opus 80 ms (RFC 7845, 4.6): those of 0.1 s, and two more, come with both groups.
    std::vector<std::size_t> first;
    std::vector<std::size_t> lead;
    std::size_t i = 0;
    std::size_t early = 0;
    for (std::size_t g = 0; g < count; ++g) {
      __extension__ using wide = __int128;
      const auto before = [&](std::size_t which, std::uint32_t tenths) {
        return g != 0 && which < t.samples.size() &&
               (wide{t.presented(t.samples[which])} * 10 + wide{tenths} * t.timescale) * pictures.timescale <
                   wide{groups.begin[g]} * 10 * t.timescale;
      };
      while (before(i, 0)) ++i;
      while (before(early, 1)) ++early;
      first.push_back(i);
      lead.push_back(early < 2 ? 0 : early - 2);
    }
    first.push_back(t.samples.size());
    firsts.push_back(std::move(first));
    leads.push_back(std::move(lead));
  }
  out += init;
  for (const clip& c : clips) {
    append_le(out, static_cast<std::uint64_t>(c.begin), 8);
    append_le(out, static_cast<std::uint64_t>(c.end), 8);
    append_le(out, c.first, 4);
    append_le(out, c.last, 4);
  }
  for (std::size_t g = 0; g < count; ++g) {
    bytes[g + 1] = bytes[g];
    number[g + 1] = number[g];
    for (std::size_t t = 0; t < tracks.size(); ++t) {
      const mp4_sample* const first = tracks[t].samples.data() + leads[t][g];
      const std::size_t lead = firsts[t][g] - leads[t][g];
      const std::size_t its = firsts[t][g + 1] - leads[t][g];
      append_le(out, samples.size(), 4);
      put_samples(samples, first, its, units[t]);
      number[g + 1] += its - lead;
      lead_number[g] += lead;
      for (std::size_t i = 0; i < its; ++i) {
        (i < lead ? lead_bytes[g] : bytes[g + 1]) += first[i].size;
        least[g] = std::min(least[g], first[i].offset);
      }
    }
  }
  append_le(out, samples.size(), 4);
  if (samples.size() > UINT32_MAX / 4) {
    throw decode_error("its tables of samples have " + std::to_string(samples.size()) + " bytes in the index: too many",
                       end);
  }
  for (const clip& c : clips) {
    place p;
    p.begin = *std::min_element(least.begin() + static_cast<std::ptrdiff_t>(c.first),
                                least.begin() + static_cast<std::ptrdiff_t>(c.last));
    const std::uint64_t head =
        from.container == 2 ? matroska_file::room
                            : moof_bytes(number[c.last] - number[c.first] + lead_number[c.first], tracks.size()) + 8;
    p.bytes = init.size() + head + bytes[c.last] - bytes[c.first] + lead_bytes[c.first];
    if (bytes[c.last] == bytes[c.first]) {
      throw archive_error("the frames of clip " + std::to_string(places.size()) + " have no bytes", end);
    }
    if (p.bytes > INT32_MAX) {
      throw decode_error("clip " + std::to_string(places.size()) + " has " + std::to_string(p.bytes) +
                             " bytes in its groups of pictures: 2 GiB or more are too many",
                         where{end.object, p.begin, {}});
    }
    places.push_back(p);
  }
  return out + samples;
}

/// Reads the numbers of a group's samples.
class video_clips::reading {
 public:
  reading(const video_clips& of, std::string_view text) : of_(of), text_(text) {}
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (text_.empty()) of_.broken();
      const auto byte = static_cast<unsigned char>(text_.front());
      text_.remove_prefix(1);
      value |= std::uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
    of_.broken();
  }
  std::int64_t signed_number() {
    const std::uint64_t value = number();
    return static_cast<std::int64_t>(value >> 1 ^ (0 - (value & 1)));
  }
  /// A time, which is so small that sums of two do not overflow.
  std::int64_t time(std::uint64_t unit = 1) {
    const std::int64_t value = signed_number();
    __extension__ using wide = __int128;
    const wide all = wide{value} * static_cast<std::int64_t>(unit);
    if (all > INT64_MAX / 4 || all < INT64_MIN / 4) of_.broken();
    return static_cast<std::int64_t>(all);
  }
  std::size_t left() const noexcept { return text_.size(); }

 private:
  const video_clips& of_;
  std::string_view text_;
};

MILLRACE_INLINE void video_clips::broken() const {
  throw index_error("the index does not say of its clips what it must", where{index_.name(), std::nullopt, {}});
}

MILLRACE_INLINE video_clips::video_clips(const shard_index& index) : index_(index), text_(index.description()) {
  if (text_.size() < head_bytes) broken();
  const std::uint64_t container = read_le(text_, 0, 4);
  if (container != 1 && container != 2) broken();
  matroska_ = container == 2;
  timescale_ = read_le(text_, 8, 4);
  tracks_ = static_cast<std::size_t>(read_le(text_, 20, 4));
  group_count_ = static_cast<std::size_t>(read_le(text_, 16, 4));
  if (timescale_ == 0 || tracks_ == 0 || tracks_ > 2) broken();
  std::string_view rest = text_.substr(head_bytes);
  const auto take = [&](std::uint64_t size) {
    if (size > rest.size()) broken();
    const std::string_view its = rest.substr(0, static_cast<std::size_t>(size));
    rest.remove_prefix(its.size());
    return its;
  };
  take(track_bytes * tracks_);
  init_ = take(read_le(text_, 4, 4));
  clips_ = take(clip_bytes * read_le(text_, 12, 4));
  groups_ = take(4 * (std::uint64_t{group_count_} * tracks_ + 1));
  samples_ = rest;
  if (clips_.size() / clip_bytes != index.samples() || index.groups() != index.samples()) broken();
}

MILLRACE_INLINE double video_clips::seconds(std::size_t c, std::size_t at) const {
  return static_cast<double>(static_cast<std::int64_t>(read_le(clips_, clip_bytes * c + at, 8))) /
         static_cast<double>(timescale_);
}

MILLRACE_INLINE std::vector<mp4_sample> video_clips::samples(std::size_t c, std::size_t t) const {
  const std::uint64_t first = read_le(clips_, clip_bytes * c + 16, 4);
  const std::uint64_t last = read_le(clips_, clip_bytes * c + 20, 4);
  if (first >= last || last > group_count_) broken();
  const std::uint64_t unit = read_le(text_, head_bytes + track_bytes * t + 4, 4);
  std::vector<mp4_sample> all;
  for (std::uint64_t g = first; g < last; ++g) {
    const auto at = static_cast<std::size_t>(4 * (g * tracks_ + t));
    const std::uint64_t begin = read_le(groups_, at, 4);
    const std::uint64_t end = read_le(groups_, at + 4, 4);
    if (begin > end || end > samples_.size()) broken();
    reading from(*this, samples_.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    const std::uint64_t count = from.number();
    if (count == 0) continue;
    if (count > from.left()) broken();  // each has a byte at least: its size
    const std::size_t before = all.size();
    all.resize(before + static_cast<std::size_t>(count));
    mp4_sample* const its = all.data() + before;
    std::int64_t now = from.time();
    // Runs: at most as many samples as there are.
    const auto run = [&](std::size_t done) {
      const std::uint64_t n = from.number();
      if (n == 0 || n > count - done) broken();
      return static_cast<std::size_t>(n);
    };
    for (std::size_t i = 0; i < count;) {
      const std::size_t n = run(i);
      const std::uint64_t duration = from.number();
      if (duration > UINT32_MAX || duration * unit > UINT32_MAX) broken();
      for (const std::size_t after = i + n; i < after; ++i) {
        its[i].decode = now;
        its[i].duration = static_cast<std::uint32_t>(duration * unit);
        now += its[i].duration;
      }
    }
    const std::uint64_t each = from.number();
    std::int64_t shift = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (i == 0 || each != 0) shift = from.time(unit);
      if (shift > INT32_MAX || shift < INT32_MIN) broken();
      its[i].shift = static_cast<std::int32_t>(shift);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t size = from.number();
      if (size > UINT32_MAX) broken();
      its[i].size = static_cast<std::uint32_t>(size);
    }
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < count;) {
      const std::size_t n = run(i);
      offset += static_cast<std::uint64_t>(from.signed_number());
      for (const std::size_t after = i + n; i < after; ++i) {
        its[i].offset = offset;
        offset += its[i].size;
        if (offset > index_.object_size() || its[i].offset > offset) broken();
      }
    }
    its->key = true;
    if (before == 0 || t == 0) continue;
    // The sound before this group has come with the one before.
    const mp4_sample& newest = all[before - 1];
    const auto its_first = all.begin() + static_cast<std::ptrdiff_t>(before);
    const auto same = std::find_if(its_first, all.end(), [&](const mp4_sample& s) {
      return s.offset == newest.offset && s.decode == newest.decode;
    });
    if (same != all.end()) all.erase(its_first, same + 1);
  }
  return all;
}

MILLRACE_INLINE std::vector<std::vector<mp4_sample>> video_clips::samples(std::size_t c) const {
  std::vector<std::vector<mp4_sample>> all;
  for (std::size_t t = 0; t < tracks_; ++t) all.push_back(samples(c, t));
  return all;
}

MILLRACE_INLINE std::vector<object_range> video_clips::ranges(std::size_t c) const { return ranges_of(samples(c)); }

MILLRACE_INLINE std::vector<object_range> video_clips::ranges_of(
    const std::vector<std::vector<mp4_sample>>& all) const {
  std::vector<object_range> runs;
  for (const std::vector<mp4_sample>& track : all) {
    for (const mp4_sample& s : track) {
      if (s.size == 0) continue;
      if (!runs.empty() && runs.back().end == s.offset) {
        runs.back().end += s.size;
      } else {
        runs.emplace_back(s.offset, s.offset + s.size);
      }
    }
  }
  if (runs.empty()) broken();
  std::sort(runs.begin(), runs.end(), [](const object_range& a, const object_range& b) { return a.begin < b.begin; });
  std::vector<std::uint64_t> gaps;
  std::uint64_t wanted = 0;
  std::uint64_t read = 0;
  std::uint64_t end = runs.front().begin;
  for (const object_range& r : runs) {
    if (r.begin > end) gaps.push_back(r.begin - end);
    wanted += r.end > end ? r.end - std::max(end, r.begin) : 0;
    end = std::max(end, r.end);
  }
  read = end - runs.front().begin;
  std::sort(gaps.begin(), gaps.end());
  // A gap is left out from this length on: the longest ones, until what is read too much is half of what is wanted.
  std::uint64_t least = UINT64_MAX;
  for (std::size_t left = 64; left > 0 && !gaps.empty() && read > wanted + wanted / 2; --left) {
    least = gaps.back();
    read -= least;
    gaps.pop_back();
  }
  constexpr std::uint64_t part = 16 * MiB;
  std::vector<object_range> out;
  object_range now(runs.front().begin, runs.front().begin);
  const auto close = [&] {
    for (; now.begin < now.end; now.begin = std::min(now.begin + part, now.end)) {
      out.emplace_back(now.begin, std::min(now.begin + part, now.end));
    }
  };
  for (const object_range& r : runs) {
    if (r.begin > now.end && r.begin - now.end >= least) {
      close();
      now = object_range(r.begin, r.begin);
    }
    now.end = std::max(now.end, r.end);
  }
  close();
  return out;
}

MILLRACE_INLINE bytes video_clips::file(std::size_t c, const std::vector<bytes>& parts,
                                        const std::string& object) const {
  const std::vector<std::vector<mp4_sample>> all = samples(c);
  const std::vector<object_range> ranges = ranges_of(all);
  if (ranges.size() != parts.size()) broken();
  std::uint64_t count = 0;
  std::uint64_t content = 0;
  for (const std::vector<mp4_sample>& track : all) {
    count += track.size();
    for (const mp4_sample& s : track) content += s.size;
  }
  if (matroska_) {
    const std::size_t head = init_.size() + matroska_file::room;
    if (content > INT32_MAX || all[0].empty()) broken();
    writable_bytes out = writable_bytes::allocate(head + static_cast<std::size_t>(content));
    std::memcpy(out.data(), init_.data(), init_.size());
    copy(all, ranges, parts, out.data() + head);
    std::uint64_t tracks[2] = {};
    for (std::size_t t = 0; t < tracks_; ++t) tracks[t] = read_le(text_, head_bytes + track_bytes * t, 4);
    const mp4_sample& first = all[0].front();
    const std::size_t size =
        matroska_file::fit(out.data(), init_.size(), static_cast<std::size_t>(content),
                           static_cast<std::uint64_t>(first.decode), tracks, where{object, first.offset, {}});
    return out.share(0, size);
  }
  const std::uint64_t moof = clip_text::moof_bytes(count, tracks_);
  if (content > INT32_MAX || moof + content > INT32_MAX) broken();
  std::string head(init_);
  const auto begin_box = [&](std::uint64_t size, std::string_view type) {
    append_be(head, size, 4);
    head += type;
  };
  begin_box(moof, "moof");
  begin_box(16, "mfhd");
  append_be(head, 0, 4);
  append_be(head, c + 1, 4);
  std::uint64_t data = moof + 8;
  for (std::size_t t = 0; t < tracks_; ++t) {
    const std::vector<mp4_sample>& track = all[t];
    const std::size_t facts = head_bytes + track_bytes * t;
    begin_box(64 + 16 * track.size(), "traf");
    begin_box(16, "tfhd");
    append_be(head, 0x20000, 4);  // offsets are from the beginning of the moof
    append_be(head, read_le(text_, facts, 4), 4);
    begin_box(20, "tfdt");
    append_be(head, 0x01000000, 4);
    const std::uint64_t first = track.empty() ? 0 : static_cast<std::uint64_t>(track.front().decode);
    append_be(head, first + read_le(text_, facts + 8, 8), 8);
    begin_box(20 + 16 * track.size(), "trun");
    append_be(head, 0x01000f01, 4);  // durations, sizes, flags, signed shifts
    append_be(head, track.size(), 4);
    append_be(head, data, 4);
    for (const mp4_sample& s : track) {
      append_be(head, s.duration, 4);
      append_be(head, s.size, 4);
      append_be(head, s.key || t != 0 ? 0x02000000 : 0x01010000, 4);
      append_be(head, static_cast<std::uint32_t>(s.shift), 4);
      data += s.size;
    }
  }
  begin_box(8 + content, "mdat");
  writable_bytes out = writable_bytes::allocate(head.size() + static_cast<std::size_t>(content));
  std::memcpy(out.data(), head.data(), head.size());
  copy(all, ranges, parts, out.data() + head.size());
  return out.share(0, head.size() + static_cast<std::size_t>(content));
}

MILLRACE_INLINE void video_clips::copy(const std::vector<std::vector<mp4_sample>>& all,
                                       const std::vector<object_range>& ranges, const std::vector<bytes>& parts,
                                       char* to) const {
  std::size_t in = 0;
  for (const std::vector<mp4_sample>& track : all) {
    for (const mp4_sample& s : track) {
      for (std::uint64_t at = s.offset, end = s.offset + s.size; at < end;) {
        if (at < ranges[in].begin || at >= ranges[in].end) {
          in = static_cast<std::size_t>(
              std::upper_bound(ranges.begin(), ranges.end(), at,
                               [](std::uint64_t byte, const object_range& r) { return byte < r.begin; }) -
              ranges.begin() - 1);
        }
        const auto from = static_cast<std::size_t>(at - ranges[in].begin);
        if (from >= parts[in].size()) broken();
        const std::size_t n = std::min(static_cast<std::size_t>(end - at), parts[in].size() - from);
        std::memcpy(to, parts[in].data() + from, n);
        to += n;
        at += n;
      }
    }
  }
}

}  // namespace millrace::inline MILLRACE_ABI::detail
