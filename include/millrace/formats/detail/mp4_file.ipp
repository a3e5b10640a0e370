// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/formats/detail/mp4_file.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void mp4_file::damaged(const std::string& reason, std::uint64_t at) const {
  throw archive_error(reason, where{object_, at, {}});
}

MILLRACE_INLINE void mp4_file::refuse(const std::string& reason, std::uint64_t at) const {
  throw decode_error(reason, where{object_, at, {}});
}

MILLRACE_INLINE bool mp4_file::next(std::string_view& rest, std::uint64_t& at, mp4_box& box) const {
  if (rest.empty()) return false;
  if (rest.size() < 8) {
    if (rest.find_first_not_of('\0') == std::string_view::npos) return false;  // QuickTime ends lists with zeros
    damaged("a box is cut: " + std::to_string(rest.size()) + " bytes of its head are there", at);
  }
  std::uint64_t size = read_be(rest, 0, 4);
  std::size_t head = 8;
  if (size == 1) {
    if (rest.size() < 16) damaged("a box is cut: its size has 16 bytes", at);
    size = read_be(rest, 8, 8);
    head = 16;
  } else if (size == 0) {
    size = rest.size();
  }
  if (size < head || size > rest.size()) {
    damaged("a box says " + std::to_string(size) + " bytes, and " + std::to_string(rest.size()) + " are left", at);
  }
  box.type = rest.substr(4, 4);
  box.all = rest.substr(0, static_cast<std::size_t>(size));
  box.body = box.all.substr(head);
  box.at = at + head;
  rest.remove_prefix(static_cast<std::size_t>(size));
  at += size;
  return true;
}

MILLRACE_INLINE bool mp4_file::find(const mp4_box& in, std::string_view type, mp4_box& box) const {
  std::string_view rest = in.body;
  std::uint64_t at = in.at;
  while (next(rest, at, box)) {
    if (box.type == type) return true;
  }
  return false;
}

MILLRACE_INLINE mp4_box mp4_file::need(const mp4_box& in, std::string_view type) const {
  mp4_box box;
  if (!find(in, type, box)) {
    damaged("the box " + std::string(in.type) + " has no " + std::string(type), in.at);
  }
  return box;
}

MILLRACE_INLINE void mp4_file::at_least(const mp4_box& box, std::size_t bytes) const {
  if (box.body.size() >= bytes) return;
  damaged("the box " + std::string(box.type) + " is cut: it has " + std::to_string(box.body.size()) + " bytes of " +
              std::to_string(bytes),
          box.at);
}

/// The bytes of a box with this body.
MILLRACE_INLINE std::string mp4_boxed(std::string_view type, std::string_view body) {
  std::string out;
  append_be(out, body.size() + 8, 4);
  out += type;
  out += body;
  return out;
}

/// A copy of a header box whose duration, after its times, is 0: `first` bytes before it in version 0.
MILLRACE_INLINE std::string mp4_without_duration(const mp4_box& box, std::size_t first) {
  std::string body(box.body);
  const bool wide = body[0] != 0;
  body.replace(wide ? first + 8 : first, wide ? 8 : 4, wide ? 8 : 4, '\0');
  return mp4_boxed(box.type, body);
}

MILLRACE_INLINE void mp4_file::movie(std::string_view box, std::uint64_t at) {
  if (has_movie_) damaged("there is a second moov", at);
  mp4_box moov;
  next(box, at, moov);
  mp4_box found;
  if (find(moov, "cmov", found)) refuse("its moov is compressed, as QuickTime did: write the file anew", found.at);
  const mp4_box header = need(moov, "mvhd");
  at_least(header, 20);
  if (header.body[0] != 0) at_least(header, 32);
  const std::uint64_t timescale = read_be(header.body, header.body[0] != 0 ? 20 : 12, 4);
  movie_header_ = mp4_without_duration(header, 16);
  fragmented_ = find(moov, "mvex", found);
  // Of pictures, and of sound: the first track that is enabled, else the first.
  mp4_box chosen[2];
  bool enabled[2] = {false, false};
  std::string_view rest = moov.body;
  std::uint64_t rest_at = moov.at;
  mp4_box trak;
  while (next(rest, rest_at, trak)) {
    if (trak.type != "trak") continue;
    const mp4_box handler = need(need(trak, "mdia"), "hdlr");
    at_least(handler, 12);
    const std::string_view kind = handler.body.substr(8, 4);
    if (kind != "vide" && (kind != "soun" || !sound_)) continue;
    const mp4_box head = need(trak, "tkhd");
    at_least(head, 4);
    const bool on = (head.body[3] & 1) != 0;
    const std::size_t i = kind == "soun" ? 1 : 0;
    if (!chosen[i].all.empty() && (enabled[i] || !on)) continue;
    chosen[i] = trak;
    enabled[i] = on;
  }
  if (chosen[0].all.empty()) refuse("it has no track of pictures", moov.at);
  for (const mp4_box& c : chosen) {
    if (!c.all.empty()) add_track(c, timescale);
  }
  if (fragmented_) {
    rest = found.body;
    rest_at = found.at;
    mp4_box trex;
    while (next(rest, rest_at, trex)) {
      if (trex.type != "trex") continue;
      at_least(trex, 24);
      for (mp4_track& t : tracks_) {
        if (t.id != read_be(trex.body, 4, 4)) continue;
        t.default_duration = static_cast<std::uint32_t>(read_be(trex.body, 12, 4));
        t.default_size = static_cast<std::uint32_t>(read_be(trex.body, 16, 4));
        t.default_flags = static_cast<std::uint32_t>(read_be(trex.body, 20, 4));
      }
    }
  }
  has_movie_ = true;
}

/// The tables of a track (`stbl`), read side by side.
class mp4_tables {
 public:
  mp4_tables(const mp4_file& file, const mp4_box& stbl) : file_(file), stbl_(stbl) {
    if (file_.find(stbl, "stsz", sizes_)) {
      file_.at_least(sizes_, 12);
      each_ = read_be(sizes_.body, 4, 4);
      if (each_ == 0) bits_ = 32;
    } else {
      sizes_ = file_.need(stbl, "stz2");
      file_.at_least(sizes_, 12);
      bits_ = static_cast<unsigned>(read_be(sizes_.body, 7, 1));
      if (bits_ != 4 && bits_ != 8 && bits_ != 16) file_.damaged("stz2 has sizes of another length", sizes_.at + 7);
    }
    samples_ = read_be(sizes_.body, 8, 4);
    file_.at_least(sizes_, 12 + static_cast<std::size_t>((samples_ * bits_ + 7) / 8));
    if (samples_ > mp4_file::most_samples) {
      file_.refuse("a track has " + std::to_string(samples_) + " samples: at most " +
                       std::to_string(mp4_file::most_samples) + " are read",
                   sizes_.at + 8);
    }
  }

  std::vector<mp4_sample> read() const {
    std::vector<mp4_sample> all(static_cast<std::size_t>(samples_));
    places(all);
    times(all);
    keys(all);
    return all;
  }

 private:
  /// A table with so many entries of `width` bytes after a head of 8; empty if it is not there and need not be.
  mp4_box table(std::string_view type, std::size_t width, bool needed, std::size_t& entries) const {
    mp4_box box;
    entries = 0;
    if (!file_.find(stbl_, type, box)) {
      if (needed && samples_ != 0) static_cast<void>(file_.need(stbl_, type));
      return mp4_box();
    }
    file_.at_least(box, 8);
    const std::uint64_t said = read_be(box.body, 4, 4);
    if (said > (box.body.size() - 8) / width) {
      file_.damaged("the table " + std::string(type) + " says " + std::to_string(said) + " entries, and is shorter",
                    box.at + 4);
    }
    entries = static_cast<std::size_t>(said);
    return box;
  }
  std::uint32_t size_of(std::size_t i) const noexcept {
    if (each_ != 0) return static_cast<std::uint32_t>(each_);
    if (bits_ == 4) {
      const std::uint64_t two = read_be(sizes_.body, 12 + i / 2, 1);
      return static_cast<std::uint32_t>(i % 2 == 0 ? two >> 4 : two & 15);
    }
    return static_cast<std::uint32_t>(read_be(sizes_.body, 12 + i * bits_ / 8, static_cast<int>(bits_ / 8)));
  }
  /// Sizes, and offsets by chunks.
  void places(std::vector<mp4_sample>& all) const {
    std::size_t runs = 0;
    std::size_t chunks = 0;
    const mp4_box run = table("stsc", 12, true, runs);
    mp4_box wide;
    const bool is_wide = file_.find(stbl_, "co64", wide);
    const std::size_t width = is_wide ? 8 : 4;
    const mp4_box chunk = table(is_wide ? "co64" : "stco", width, true, chunks);
    std::size_t i = 0;
    for (std::size_t r = 0, c = 0; r < runs && i < all.size(); ++r) {
      const std::size_t at = 8 + 12 * r;
      const std::uint64_t first = read_be(run.body, at, 4);
      const std::uint64_t after = r + 1 < runs ? read_be(run.body, at + 12, 4) : chunks + 1;
      const std::uint64_t each = read_be(run.body, at + 4, 4);
      if (first != c + 1 || after <= first || after > chunks + 1) {
        file_.damaged("the table stsc has chunks that are not there, or not in their order", run.at + at);
      }
      if (read_be(run.body, at + 8, 4) != 1) {
        file_.refuse("its samples are coded in several ways (of several sample descriptions)", run.at + at + 8);
      }
      for (; c + 1 < after; ++c) {
        std::uint64_t offset = read_be(chunk.body, 8 + width * c, static_cast<int>(width));
        for (std::uint64_t k = 0; k < each && i < all.size(); ++k, ++i) {
          all[i].size = size_of(i);
          all[i].offset = offset;
          offset += all[i].size;
        }
      }
    }
    if (i != all.size()) {
      file_.damaged("its chunks have " + std::to_string(i) + " samples of " + std::to_string(all.size()), stbl_.at);
    }
  }
  /// Calls `f` with each sample and its value, of a table of runs.
  template <class F>
  void each_of_runs(std::string_view type, bool needed, std::vector<mp4_sample>& all, const F& f) const {
    std::size_t entries = 0;
    const mp4_box runs = table(type, 8, needed, entries);
    if (!needed && entries == 0) return;
    std::size_t i = 0;
    for (std::size_t r = 0; r < entries; ++r) {
      const std::uint64_t count = read_be(runs.body, 8 + 8 * r, 4);
      const auto value = static_cast<std::uint32_t>(read_be(runs.body, 12 + 8 * r, 4));
      for (std::uint64_t k = 0; k < count && i < all.size(); ++k, ++i) f(all[i], value);
    }
    if (i != all.size()) {
      file_.damaged(
          "the table " + std::string(type) + " has " + std::to_string(i) + " samples of " + std::to_string(all.size()),
          runs.at);
    }
  }
  void times(std::vector<mp4_sample>& all) const {
    std::int64_t now = 0;
    each_of_runs("stts", true, all, [&](mp4_sample& s, std::uint32_t duration) {
      s.decode = now;
      s.duration = duration;
      now += duration;
    });
    each_of_runs("ctts", false, all,
                 [](mp4_sample& s, std::uint32_t shift) { s.shift = static_cast<std::int32_t>(shift); });
  }
  void keys(std::vector<mp4_sample>& all) const {
    mp4_box box;
    if (!file_.find(stbl_, "stss", box)) {
      for (mp4_sample& s : all) s.key = true;
      return;
    }
    std::size_t entries = 0;
    const mp4_box numbers = table("stss", 4, false, entries);
    for (std::size_t k = 0; k < entries; ++k) {
      const std::uint64_t number = read_be(numbers.body, 8 + 4 * k, 4);
      if (number == 0 || number > all.size()) {
        file_.damaged("the table stss has sample " + std::to_string(number) + " of " + std::to_string(all.size()),
                      numbers.at + 8 + 4 * k);
      }
      all[static_cast<std::size_t>(number - 1)].key = true;
    }
  }

  const mp4_file& file_;
  const mp4_box stbl_;
  mp4_box sizes_;
  std::uint64_t each_ = 0;  // bytes of every sample; 0: they have a table
  unsigned bits_ = 0;       // of an entry of that
  std::uint64_t samples_ = 0;
};

MILLRACE_INLINE void mp4_file::add_track(const mp4_box& trak, std::uint64_t movie_timescale) {
  mp4_track track;
  const mp4_box mdia = need(trak, "mdia");
  const mp4_box header = need(trak, "tkhd");
  at_least(header, 84);
  if (header.body[0] != 0) at_least(header, 96);
  track.id = static_cast<std::uint32_t>(read_be(header.body, header.body[0] != 0 ? 20 : 12, 4));
  const mp4_box media = need(mdia, "mdhd");
  at_least(media, 24);
  if (media.body[0] != 0) at_least(media, 36);
  track.timescale = static_cast<std::uint32_t>(read_be(media.body, media.body[0] != 0 ? 20 : 12, 4));
  if (track.timescale == 0 || track.timescale > INT32_MAX) {
    damaged("a track has a second of " + std::to_string(track.timescale) + " ticks", media.at);
  }
  const mp4_box minf = need(mdia, "minf");
  const mp4_box stbl = need(minf, "stbl");
  description(stbl, minf);
  edits(trak, movie_timescale, track);
  track.samples = mp4_tables(*this, stbl).read();
  keep_boxes(trak, track);
  tracks_.push_back(std::move(track));
}

MILLRACE_INLINE void mp4_file::description(const mp4_box& stbl, const mp4_box& minf) const {
  const mp4_box stsd = need(stbl, "stsd");
  at_least(stsd, 16);
  const std::string_view coded = stsd.body.substr(12, 4);
  if (coded == "encv" || coded == "enca" || coded == "drmi" || coded == "drms") {
    refuse("a track is encrypted (" + std::string(coded) + "): decrypt the file before", stsd.at + 12);
  }
  mp4_box dinf;
  mp4_box dref;
  if (find(minf, "dinf", dinf) && find(dinf, "dref", dref) && dref.body.size() >= 20 && (dref.body[19] & 1) == 0) {
    refuse("the samples of a track are in another file", dref.at + 16);
  }
}

MILLRACE_INLINE void mp4_file::edits(const mp4_box& trak, std::uint64_t movie_timescale, mp4_track& track) const {
  mp4_box edts;
  mp4_box elst;
  if (!find(trak, "edts", edts) || !find(edts, "elst", elst)) return;
  at_least(elst, 8);
  const bool wide = elst.body[0] != 0;
  const std::size_t width = wide ? 20 : 12;
  const std::uint64_t entries = read_be(elst.body, 4, 4);
  if (entries > (elst.body.size() - 8) / width) damaged("the edit list is cut", elst.at + 4);
  if (entries == 0) return;
  if (movie_timescale == 0) damaged("the movie has a second of no ticks, and an edit list", elst.at);
  constexpr std::uint64_t most = std::uint64_t{1} << 62;
  const auto in_track = [&](std::uint64_t duration) {
    __extension__ using wide_number = unsigned __int128;
    const wide_number ticks = (wide_number{duration} * track.timescale + movie_timescale / 2) / movie_timescale;
    if (ticks > most / 4) damaged("the edit list has times of centuries", elst.at);
    return static_cast<std::int64_t>(ticks);
  };
  bool plays = false;
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t at = 8 + width * i;
    const std::uint64_t duration = read_be(elst.body, at, wide ? 8 : 4);
    const std::uint64_t from = read_be(elst.body, at + (wide ? 8 : 4), wide ? 8 : 4);
    if (from == (wide ? UINT64_MAX : UINT32_MAX)) {
      if (plays) continue;  // nothing, after the pictures
      track.delay += in_track(duration);
      if (track.delay > static_cast<std::int64_t>(most)) damaged("the edit list has times of centuries", elst.at);
      continue;
    }
    if (plays) refuse("its edit list plays several pieces of a track: write the file anew", elst.at + at);
    if (read_be(elst.body, at + width - 4, 4) != 0x10000) {
      refuse("its edit list plays a track at another speed: write the file anew", elst.at + at + width - 4);
    }
    if (from > most / 4) damaged("the edit list has times of centuries", elst.at + at);
    plays = true;
    track.media_begin = static_cast<std::int64_t>(from);
    if (duration != 0) track.media_end = track.media_begin + in_track(duration);
  }
}

MILLRACE_INLINE void mp4_file::keep_boxes(const mp4_box& trak, mp4_track& track) const {
  const mp4_box mdia = need(trak, "mdia");
  const mp4_box minf = need(mdia, "minf");
  const std::string no_entries(8, '\0');
  const std::string tables = std::string(need(need(minf, "stbl"), "stsd").all) + mp4_boxed("stts", no_entries) +
                             mp4_boxed("stsc", no_entries) + mp4_boxed("stsz", std::string(12, '\0')) +
                             mp4_boxed("stco", no_entries);
  std::string media;
  std::string_view rest = minf.body;
  std::uint64_t at = minf.at;
  mp4_box box;
  while (next(rest, at, box)) {
    if (box.type != "stbl") media += box.all;
  }
  track.header = mp4_without_duration(need(trak, "tkhd"), 20);
  track.media = mp4_boxed("mdia", mp4_without_duration(need(mdia, "mdhd"), 16) + std::string(need(mdia, "hdlr").all) +
                                      mp4_boxed("minf", media + mp4_boxed("stbl", tables)));
  if (track.header.size() + track.media.size() > 1024 * 1024) {
    refuse("what a decoder needs to know of a track has more than 1 MiB", trak.at);
  }
}

MILLRACE_INLINE void mp4_file::finish(std::uint64_t object_size) {
  for (mp4_track& t : tracks_) {
    std::int64_t least = 0;
    std::int64_t most = 0;
    std::uint64_t bytes = 0;
    for (const mp4_sample& s : t.samples) {
      bytes += s.size;
      if (s.offset > object_size || s.size > object_size - s.offset) {
        damaged("sample " + std::to_string(&s - t.samples.data()) + " of a track has " + std::to_string(s.size) +
                    " bytes, and the object has " + std::to_string(object_size) + ": it is cut, or damaged",
                s.offset);
      }
      if (bytes > object_size) {
        damaged("the samples of a track overlap: together they are longer than the object", s.offset);
      }
      least = std::min<std::int64_t>(least, s.shift);
      most = std::max<std::int64_t>(most, s.shift);
    }
    if (most - least > INT32_MAX) refuse("frames are decoded hours before they are shown", 0);
    if (least == 0) continue;
    for (mp4_sample& s : t.samples) s.shift = static_cast<std::int32_t>(s.shift - least);
    t.media_begin -= least;
    if (t.media_end != INT64_MAX) t.media_end -= least;
  }
}

MILLRACE_INLINE std::string mp4_file::init() const {
  std::string type(brand_);
  append_be(type, 0x200, 4);
  type += brand_ == "qt  " ? "qt  " : "isomiso6mp41";
  std::string movie = movie_header_;
  std::string defaults;
  for (const mp4_track& t : tracks_) {
    std::string edits;
    if (t.media_begin != 0) {
      append_be(edits, 0x01000000, 4);
      append_be(edits, 1, 4);
      append_be(edits, 0, 8);
      append_be(edits, static_cast<std::uint64_t>(t.media_begin), 8);
      append_be(edits, 0x10000, 4);
      edits = mp4_boxed("edts", mp4_boxed("elst", edits));
    }
    movie += mp4_boxed("trak", t.header + edits + t.media);
    std::string trex;
    append_be(trex, 0, 4);
    append_be(trex, t.id, 4);
    append_be(trex, 1, 4);
    trex.append(12, '\0');
    defaults += mp4_boxed("trex", trex);
  }
  return mp4_boxed("ftyp", type) + mp4_boxed("moov", movie + mp4_boxed("mvex", defaults));
}

MILLRACE_INLINE void mp4_file::add(mp4_track& track, const mp4_sample& sample, std::uint64_t table_at) const {
  if (track.samples.size() == most_samples) {
    refuse("a track has more than " + std::to_string(most_samples) + " samples", table_at);
  }
  if (!track.samples.empty()) {
    mp4_sample& last = track.samples.back();
    if (sample.decode < last.decode) damaged("a fragment begins before the one before it", table_at);
    // A gap between fragments belongs to the sample before it.
    if (sample.decode - last.decode > INT32_MAX) damaged("there is a gap of hours between two fragments", table_at);
    last.duration = static_cast<std::uint32_t>(sample.decode - last.decode);
  }
  track.samples.push_back(sample);
}

MILLRACE_INLINE void mp4_file::fragment(std::string_view box, std::uint64_t at) {
  const std::uint64_t begin = at;
  mp4_box moof;
  next(box, at, moof);
  std::string_view rest = moof.body;
  std::uint64_t rest_at = moof.at;
  mp4_box traf;
  bool first = true;
  while (next(rest, rest_at, traf)) {
    if (traf.type != "traf") continue;
    track_fragment(traf, begin, first);
    first = false;
  }
}

MILLRACE_INLINE void mp4_file::track_fragment(const mp4_box& traf, std::uint64_t moof_at, bool first) {
  const mp4_box head = need(traf, "tfhd");
  at_least(head, 8);
  const std::uint64_t id = read_be(head.body, 4, 4);
  const auto its = std::find_if(tracks_.begin(), tracks_.end(), [&](const mp4_track& t) { return t.id == id; });
  if (its == tracks_.end()) return;
  mp4_track& track = *its;
  const std::uint64_t flags = read_be(head.body, 1, 3);
  std::size_t at = 8;
  const auto optional = [&](const mp4_box& box, std::size_t& place, bool there, int bytes, std::uint64_t otherwise) {
    if (!there) return otherwise;
    at_least(box, place + static_cast<std::size_t>(bytes));
    const std::uint64_t value = read_be(box.body, place, bytes);
    place += static_cast<std::size_t>(bytes);
    return value;
  };
  std::uint64_t base = optional(head, at, (flags & 1) != 0, 8, moof_at);
  if ((flags & 1) == 0 && (flags & 0x20000) == 0 && !first) {
    refuse("a fragment places its samples after those of another track (no default-base-is-moof): write it anew",
           head.at);
  }
  if (optional(head, at, (flags & 2) != 0, 4, 1) != 1) {
    refuse("its samples are coded in several ways (of several sample descriptions)", head.at);
  }
  const std::uint64_t duration = optional(head, at, (flags & 8) != 0, 4, track.default_duration);
  const std::uint64_t size = optional(head, at, (flags & 0x10) != 0, 4, track.default_size);
  const std::uint64_t kind = optional(head, at, (flags & 0x20) != 0, 4, track.default_flags);
  std::int64_t now = track.samples.empty() ? 0 : track.samples.back().decode + track.samples.back().duration;
  mp4_box box;
  if (find(traf, "tfdt", box)) {
    at_least(box, 8);
    if (box.body[0] != 0) at_least(box, 12);
    const std::uint64_t said = read_be(box.body, 4, box.body[0] != 0 ? 8 : 4);
    if (said >> 60 != 0) damaged("a fragment has times of centuries", box.at);
    now = static_cast<std::int64_t>(said);
  }
  std::string_view rest = traf.body;
  std::uint64_t rest_at = traf.at;
  std::uint64_t offset = base;
  while (next(rest, rest_at, box)) {
    if (box.type != "trun") continue;
    at_least(box, 8);
    const std::uint64_t has = read_be(box.body, 1, 3);
    const std::uint64_t count = read_be(box.body, 4, 4);
    std::size_t place = 8;
    if ((has & 1) != 0) {
      const std::int64_t shift = static_cast<std::int32_t>(optional(box, place, true, 4, 0));
      offset = base + static_cast<std::uint64_t>(shift);
    }
    const std::uint64_t first_kind = optional(box, place, (has & 4) != 0, 4, kind);
    std::size_t width = 0;
    for (std::uint64_t column = 0x100; column <= 0x800; column *= 2) width += (has & column) != 0 ? 4 : 0;
    if (width != 0 && count > (box.body.size() - place) / width) {
      damaged("a trun says " + std::to_string(count) + " samples, and is shorter", box.at + 4);
    }
    // Without a table it says of nothing how often: samples without bytes would be as many as it likes.
    if (width == 0 && count > 65536) refuse("a trun has " + std::to_string(count) + " samples alike", box.at + 4);
    for (std::uint64_t i = 0; i < count; ++i) {
      mp4_sample s;
      s.duration = static_cast<std::uint32_t>(optional(box, place, (has & 0x100) != 0, 4, duration));
      s.size = static_cast<std::uint32_t>(optional(box, place, (has & 0x200) != 0, 4, size));
      const std::uint64_t its_kind =
          optional(box, place, (has & 0x400) != 0, 4, i == 0 && (has & 4) != 0 ? first_kind : kind);
      s.shift = static_cast<std::int32_t>(optional(box, place, (has & 0x800) != 0, 4, 0));
      s.key = (its_kind & 0x10000) == 0;
      s.offset = offset;
      s.decode = now;
      add(track, s, box.at);
      offset += s.size;
      now += s.duration;
      if (now >> 61 != 0) damaged("a fragment has times of centuries", box.at);
    }
  }
}

}  // namespace millrace::inline MILLRACE_ABI::detail
