// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/formats/detail/matroska_file.hpp>
#include <millrace/formats/detail/mp4_file.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

namespace ebml {

enum id : std::uint64_t {
  header = 0x1a45dfa3,
  segment = 0x18538067,
  seek_head = 0x114d9b74,
  seek = 0x4dbb,
  seek_id = 0x53ab,
  seek_position = 0x53ac,
  info = 0x1549a966,
  timestamp_scale = 0x2ad7b1,
  duration = 0x4489,
  tracks = 0x1654ae6b,
  track_entry = 0xae,
  track_number = 0xd7,
  track_type = 0x83,
  flag_enabled = 0xb9,
  codec_id = 0x86,
  track_timestamp_scale = 0x23314f,
  content_encodings = 0x6d80,
  content_encoding = 0x6240,
  content_encryption = 0x5035,
  cues = 0x1c53bb6b,
  cue_point = 0xbb,
  cue_track_positions = 0xb7,
  cue_track = 0xf7,
  cue_cluster_position = 0xf1,
  cue_relative_position = 0xf0,
  cluster = 0x1f43b675,
  timestamp = 0xe7,
  simple_block = 0xa3,
  block_group = 0xa0,
  block = 0xa1,
  reference_block = 0xfb,
};

/// Takes a number of 1 to 8 bytes, whose length is in the first one. `marked`: with the mark of its length, as ids
/// have it; else UINT64_MAX where all bits are ones. False if the text is shorter.
inline bool take(std::string_view text, std::size_t& at, bool marked, std::uint64_t& value) noexcept {
  if (at >= text.size()) return false;
  const auto first = static_cast<unsigned char>(text[at]);
  const auto bytes = static_cast<std::size_t>(std::countl_zero(first)) + 1;
  if (bytes > 8 || bytes > text.size() - at) return false;
  value = read_be(text, at, static_cast<int>(bytes));
  at += bytes;
  if (marked) return true;
  const std::uint64_t ones = (std::uint64_t{1} << (7 * bytes)) - 1;
  value = (value & ones) == ones ? UINT64_MAX : value & ones;
  return true;
}

/// The head of the element at the front of a text. Its body is set if the text has it. False if there is
/// no element.
inline bool element_of(std::string_view text, ebml_element& e) noexcept {
  e.head = 0;
  e.body = {};
  if (!take(text, e.head, true, e.id) || e.head > 4 || !take(text, e.head, false, e.size)) return false;
  if (e.size <= text.size() - e.head) e.body = text.substr(e.head, static_cast<std::size_t>(e.size));
  return true;
}

/// The head of a block: its track, its time after the cluster's, and its flags. False if the text is shorter.
inline bool block_of(std::string_view body, std::uint64_t& track, std::int64_t& time, bool& key) noexcept {
  std::size_t at = 0;
  if (!take(body, at, false, track) || body.size() - at < 3) return false;
  time = static_cast<std::int16_t>(read_be(body, at, 2));
  key = (static_cast<unsigned char>(body[at + 2]) & 0x80) != 0;
  return true;
}

/// Appends an element with a head of the fewest bytes.
inline void put(std::string& out, std::uint64_t id, std::string_view body) {
  append_be(out, id, static_cast<int>((std::bit_width(id) + 7) / 8));
  int bytes = 1;
  while (body.size() + 1 >= std::uint64_t{1} << (7 * bytes)) ++bytes;
  append_be(out, body.size() | std::uint64_t{1} << (7 * bytes), bytes);
  out += body;
}

inline std::string shown(std::uint64_t id) {
  for (const auto& [its, name] :
       {std::pair{segment, "Segment"}, std::pair{seek_head, "SeekHead"}, std::pair{info, "Info"},
        std::pair{tracks, "Tracks"}, std::pair{cues, "Cues"}, std::pair{cluster, "Cluster"}}) {
    if (its == id) return name;
  }
  char text[32];
  std::snprintf(text, sizeof text, "element %llx", static_cast<unsigned long long>(id));
  return text;
}

inline constexpr const char* write_anew = "`ffmpeg -i old.mkv -c copy new.mkv` or mkvmerge write it anew";

}  // namespace ebml

MILLRACE_INLINE void matroska_file::damaged(const std::string& reason, std::uint64_t at) const {
  throw archive_error(reason, where{object_, at, {}});
}

MILLRACE_INLINE void matroska_file::refuse(const std::string& reason, std::uint64_t at) const {
  throw decode_error(reason, where{object_, at, {}});
}

MILLRACE_INLINE bool matroska_file::have(std::uint64_t at, std::uint64_t bytes, std::string_view& text) {
  wanted_ = at;
  wanted_bytes_ = std::min(bytes, end_ - at);
  const std::uint64_t before = at - window_at_;
  if (at < window_at_ || before > window_.size() || window_.size() - before < wanted_bytes_) return false;
  text = window_.substr(static_cast<std::size_t>(before));
  return true;
}

MILLRACE_INLINE ebml_element matroska_file::element(std::string_view text, std::uint64_t at) const {
  ebml_element e;
  e.at = at;
  if (!ebml::element_of(text, e)) damaged("no element of Matroska begins here", at);
  return e;
}

MILLRACE_INLINE std::uint64_t matroska_file::end_of(const ebml_element& e, std::uint64_t limit) const {
  if (e.size == UINT64_MAX) damaged(ebml::shown(e.id) + " has no size", e.at);
  if (e.body_at() > limit || e.size > limit - e.body_at()) {
    damaged(ebml::shown(e.id) + " says " + std::to_string(e.size) + " bytes, and what it is in ends at byte " +
                std::to_string(limit) + ": it is cut, or damaged",
            e.at);
  }
  return e.body_at() + e.size;
}

template <class F>
void matroska_file::each(const ebml_element& in, const F& f) const {
  std::string_view rest = in.body;
  for (std::uint64_t at = in.body_at(), end = at + rest.size(); at < end;) {
    const ebml_element e = element(rest, at);
    const std::uint64_t after = end_of(e, end);
    f(e);
    rest.remove_prefix(static_cast<std::size_t>(after - at));
    at = after;
  }
}

MILLRACE_INLINE std::uint64_t matroska_file::number(const ebml_element& e) const {
  if (e.body.size() > 8) damaged(ebml::shown(e.id) + " is a number of more than 8 bytes", e.at);
  return read_be(e.body, 0, static_cast<int>(e.body.size()));
}

MILLRACE_INLINE double matroska_file::real(const ebml_element& e) const {
  if (e.body.size() == 4) return std::bit_cast<float>(static_cast<std::uint32_t>(number(e)));
  return e.body.size() == 8 ? std::bit_cast<double>(number(e)) : 0;
}

MILLRACE_INLINE std::int64_t matroska_file::nanoseconds(std::int64_t ticks, std::uint64_t at) const {
  constexpr std::int64_t most = 1'000'000'000'000'000'000;
  if (ticks > most / static_cast<std::int64_t>(scale_)) damaged("it has times of more than 31 years", at);
  return ticks * static_cast<std::int64_t>(scale_);
}

MILLRACE_INLINE void matroska_file::look(std::string_view window, std::uint64_t at) {
  window_ = window;
  window_at_ = at;
  while (!done_ && (in_clusters_ ? inside() : top())) {
  }
  window_ = {};
}

/// Takes an element of the file or of the segment. False if more bytes must come before.
MILLRACE_INLINE bool matroska_file::top() {
  if (at_ >= end_) return go_on();
  std::string_view text;
  if (!have(at_, 12, text)) return false;
  ebml_element e = element(text, at_);
  if (expected_ != 0 && e.id != expected_) {
    damaged("the SeekHead says that " + ebml::shown(expected_) + " begins here, and it is " + ebml::shown(e.id), at_);
  }
  if (segment_ == 0 && e.id == ebml::segment) {
    if (e.size != UINT64_MAX) end_ = end_of(e, end_);
    at_ = segment_ = e.body_at();
    return true;
  }
  if (segment_ != 0 && e.id == ebml::cluster) {
    first_cluster_ = at_;
    return go_on();
  }
  const std::uint64_t end = end_of(e, end_);
  if (at_ == 0 || e.id == ebml::seek_head || e.id == ebml::info || e.id == ebml::tracks || e.id == ebml::cues) {
    const std::uint64_t most = at_ == 0 ? 64 * KiB : longest_element;
    if (end - at_ > most) {
      refuse(ebml::shown(e.id) + " has " + std::to_string(end - at_) + " bytes: at most " + std::to_string(most) +
                 " are read",
             at_);
    }
    if (!have(at_, end - at_, text)) return false;
    e = element(text.substr(0, static_cast<std::size_t>(end - at_)), at_);
    if (at_ == 0) header_ = text.substr(0, static_cast<std::size_t>(end));
    if (e.id == ebml::seek_head) seek_head(e);
    if (e.id == ebml::info) info(e);
    if (e.id == ebml::tracks) tracks(e);
    if (e.id == ebml::cues) cues(e);
  }
  at_ = end;
  return expected_ == 0 || go_on();
}

/// The first cluster has been found: goes to what was not before it.
MILLRACE_INLINE bool matroska_file::go_on() {
  for (const std::uint64_t id : {ebml::info, ebml::tracks, ebml::cues}) {
    if (id == ebml::info ? has_info_ : id == ebml::tracks ? has_tracks_ : cues_at_ != 0) continue;
    for (const std::uint64_t place : {id, std::uint64_t{ebml::seek_head}}) {
      const auto its = seek_.extract(place);
      if (its.empty()) continue;
      at_ = its.mapped();
      expected_ = place;
      return true;
    }
    refuse("it has no " + ebml::shown(id) + ", or no SeekHead that says where: " + ebml::write_anew, at_);
  }
  begin_clusters();
  return true;
}

MILLRACE_INLINE void matroska_file::seek_head(const ebml_element& head) {
  if (++seek_heads_ > 8) damaged("it has more than 8 SeekHeads", head.at);
  each(head, [&](const ebml_element& seek) {
    if (seek.id != ebml::seek) return;
    std::uint64_t id = 0;
    std::uint64_t place = 0;
    each(seek, [&](const ebml_element& e) {
      if (e.id == ebml::seek_id) id = number(e);
      if (e.id == ebml::seek_position) place = number(e);
    });
    if (id != ebml::info && id != ebml::tracks && id != ebml::cues && id != ebml::seek_head) return;
    if (place >= end_ - segment_) damaged("the SeekHead has a place after the segment's end", seek.at);
    seek_.emplace(id, segment_ + place);
  });
}

MILLRACE_INLINE void matroska_file::info(const ebml_element& head) {
  has_info_ = true;
  double ticks = 0;
  each(head, [&](const ebml_element& e) {
    if (e.id == ebml::timestamp_scale) scale_ = number(e);
    if (e.id == ebml::duration) ticks = real(e);
  });
  if (scale_ == 0 || scale_ > 1'000'000'000'000) {
    damaged("its times are in units of " + std::to_string(scale_) + " ns", head.at);
  }
  if (!(ticks > 0)) refuse(std::string("its Info has no Duration: ") + ebml::write_anew, head.at);
  duration_ = nanoseconds(static_cast<std::int64_t>(std::min(ticks + 0.5, 1e18)), head.at);
}

MILLRACE_INLINE void matroska_file::tracks(const ebml_element& head) {
  has_tracks_ = true;
  each(head, [&](const ebml_element& entry) {
    if (entry.id != ebml::track_entry) return;
    its_track track;
    std::uint64_t type = 0;
    std::uint64_t encrypted = 0;
    std::uint64_t scaled = 0;
    each(entry, [&](const ebml_element& e) {
      if (e.id == ebml::track_number) track.number = number(e);
      if (e.id == ebml::track_type) type = number(e);
      if (e.id == ebml::flag_enabled) track.enabled = number(e) != 0;
      if (e.id == ebml::track_timestamp_scale && real(e) != 1) scaled = e.at;
      if (e.id == ebml::codec_id) {
        for (const char* const name : {"V_VP8", "V_VP9", "V_AV1", "V_FFV1", "V_MJPEG", "V_PRORES"}) {
          if (e.body.starts_with(name)) track.reorders = false;
        }
      }
      if (e.id != ebml::content_encodings) return;
      each(e, [&](const ebml_element& coding) {
        if (coding.id != ebml::content_encoding) return;
        each(coding, [&](const ebml_element& how) {
          if (how.id == ebml::content_encryption) encrypted = how.at;
        });
      });
    });
    if (type != 1 && (type != 2 || !sound_)) return;
    if (track.number == 0 || track.number > INT32_MAX) damaged("a track has no number, or a large one", entry.at);
    its_track& chosen = tracks_[type - 1];
    if (chosen.number != 0 && (chosen.enabled || !track.enabled)) return;
    if (encrypted != 0) refuse("a track is encrypted: decrypt the file before", encrypted);
    if (scaled != 0) refuse("the times of a track have a scale of their own", scaled);
    if (entry.size > MiB) refuse("what a decoder needs to know of a track has more than 1 MiB", entry.at);
    track.entry.assign(entry.body.data() - entry.head, entry.head + entry.body.size());
    chosen = std::move(track);
  });
  if (tracks_[0].number == 0) refuse("it has no track of pictures", head.at);
}

MILLRACE_INLINE void matroska_file::cues(const ebml_element& head) {
  cues_at_ = head.at;
  each(head, [&](const ebml_element& point) {
    if (point.id != ebml::cue_point) return;
    each(point, [&](const ebml_element& positions) {
      if (positions.id != ebml::cue_track_positions) return;
      cue c;
      c.at = positions.at;
      each(positions, [&](const ebml_element& e) {
        if (e.id == ebml::cue_track) c.track = number(e);
        if (e.id == ebml::cue_cluster_position) c.cluster = number(e);
        if (e.id == ebml::cue_relative_position) c.place = std::min(number(e), UINT64_MAX - 1) + 1;
      });
      const std::uint64_t most = end_ - segment_;
      if (c.cluster >= most || c.place >= most - c.cluster)
        damaged("a cue is of a place after the segment's end", c.at);
      c.cluster += segment_;
      if (cues_.size() == most_cues) refuse("it has more than " + std::to_string(most_cues) + " cues", c.at);
      cues_.push_back(c);
    });
  });
}

MILLRACE_INLINE void matroska_file::begin_clusters() {
  std::erase_if(cues_, [&](const cue& c) { return c.track != tracks_[0].number; });
  if (cues_.empty()) {
    refuse(std::string("its Cues name no frame of the track of pictures: ") + ebml::write_anew, cues_at_);
  }
  const auto before = [](const cue& a, const cue& b) {
    return a.cluster != b.cluster ? a.cluster < b.cluster : a.place < b.place;
  };
  std::sort(cues_.begin(), cues_.end(), before);
  if (first_cluster_ != 0 && first_cluster_ < cues_.front().cluster) {  // its frames are no cue's, and must be some's
    cue first;
    first.at = first.cluster = first_cluster_;
    cues_.insert(cues_.begin(), first);
  }
  // One is enough of cues that say nothing but their cluster.
  const auto same = [](const cue& a, const cue& b) { return a.cluster == b.cluster && a.place == b.place; };
  cues_.erase(std::unique(cues_.begin(), cues_.end(), same), cues_.end());
  in_clusters_ = true;
  at_ = 0;
}

MILLRACE_INLINE void matroska_file::next_cue() noexcept {
  ++cue_;
  entered_ = found_ = false;
}

MILLRACE_INLINE void matroska_file::enter_cluster(const ebml_element& e) noexcept {
  cluster_ = e.at;
  at_ = body_ = e.body_at();
  cluster_time_.reset();
}

/// Goes to the beginning of a cue's cluster, or to its block if at_ is in its cluster.
MILLRACE_INLINE bool matroska_file::enter(const cue& c) {
  const bool same = cluster_ == c.cluster && c.place != 0;
  const std::uint64_t place = same ? body_ + c.place - 1 : c.cluster;
  if (place < at_) damaged("a cue is of a place inside of another cue's block", c.at);
  if (!same) {
    std::string_view text;
    if (!have(place, 12, text)) return false;
    const ebml_element e = element(text, place);
    if (e.id != ebml::cluster)
      damaged("a cue names byte " + std::to_string(place) + ", and no cluster begins there", c.at);
    if (e.size != UINT64_MAX) static_cast<void>(end_of(e, end_));
    enter_cluster(e);
  }
  if (same) at_ = place;
  at_block_ = same;
  group_end_ = 0;
  entered_ = true;
  return true;
}

/// Takes an element of a cluster. False if more bytes must come before.
MILLRACE_INLINE bool matroska_file::inside() {
  if (cue_ == cues_.size()) {
    done_ = true;
    return false;
  }
  const cue& c = cues_[cue_];
  if (!entered_) return enter(c);
  std::uint64_t limit = end_;
  if (cue_ + 1 < cues_.size()) {
    const cue& after = cues_[cue_ + 1];
    limit = std::min(limit, after.cluster == cluster_ ? body_ + after.place - 1 : after.cluster + (after.place != 0));
  }
  if (at_ >= limit) {
    next_cue();
    return true;
  }
  std::string_view text;
  if (!have(at_, 24, text)) return false;
  const ebml_element e = element(text, at_);
  if (at_block_ && e.id != ebml::simple_block && e.id != ebml::block_group) {
    damaged("a cue names byte " + std::to_string(at_) + ", and no block begins there", c.at);
  }
  at_block_ = false;
  if (e.id == ebml::cluster) {
    if (!found_ && c.place != 0) damaged("the cluster that a cue names has no timestamp", c.at);
    enter_cluster(e);
    group_end_ = 0;
    return true;
  }
  const std::uint64_t end = end_of(e, group_end_ != 0 ? group_end_ : end_);
  at_ = end;
  if (e.id == ebml::timestamp) {
    if (e.size > 8) damaged("a timestamp has more than 8 bytes", e.at);
    cluster_time_ = read_be(text, e.head, static_cast<int>(e.size));
    if (groups_.empty() && cluster_ == first_cluster_) first_block_ = at_;
    if (*cluster_time_ >> 60 != 0) damaged("it has times of more than 31 years", e.at);
    if (!found_ && c.place != 0) {
      if (body_ + c.place - 1 < at_) damaged("a cue names a place before its cluster's blocks", c.at);
      at_ = body_ + c.place - 1;
      at_block_ = true;
    }
  } else if (e.id == ebml::block_group && group_end_ == 0) {
    group_ = e.at;
    group_end_ = end;
    block_track_ = 0;
    block_key_ = true;
    at_ = e.body_at();
  } else if (e.id == ebml::reference_block) {
    block_key_ = false;
  } else if (e.id == (group_end_ == 0 ? ebml::simple_block : ebml::block)) {
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(e.size, text.size() - e.head));
    bool key = false;
    if (!cluster_time_ || !ebml::block_of(text.substr(e.head, bytes), block_track_, block_time_, key)) {
      damaged(cluster_time_ ? "a block is too short" : "a block comes before its cluster's timestamp", e.at);
    }
    block_time_ += static_cast<std::int64_t>(*cluster_time_);
    if (e.id == ebml::simple_block) {
      block_key_ = key;
      block(e.at, end, c);
    }
  }
  if (group_end_ != 0 && at_ == group_end_) {
    group_end_ = 0;
    block(group_, at_, c);
  }
  return true;
}

/// A block whose head has been read.
MILLRACE_INLINE void matroska_file::block(std::uint64_t begin, std::uint64_t end, const cue& c) {
  const bool pictures = block_track_ == tracks_[0].number;
  const std::int64_t shown = nanoseconds(block_time_, begin);
  if (!found_ && pictures) {
    if (!block_key_) return next_cue();  // of a cluster that begins inside of a group
    if (!groups_.empty() && shown < groups_.back().shown) {
      damaged("a key frame is shown before the one that comes before it", begin);
    }
    group g;
    g.begin = groups_.empty() && first_block_ != 0 ? first_block_ : begin;
    g.lead = end;
    g.cluster = *cluster_time_;
    g.shown = g.least = shown;
    groups_.push_back(g);
    found_ = true;
    waits_[0] = tracks_[0].reorders;
    waits_[1] = tracks_[1].number != 0;
  } else if (!found_) {
    if (c.place != 0) damaged("a cue names a block of another track", c.at);
  } else if (pictures || block_track_ == tracks_[1].number) {
    group& g = groups_.back();
    if (shown < g.shown) {
      g.least = std::min(g.least, shown);
      g.lead = end;
    } else {
      waits_[pictures ? 0 : 1] = false;
      // Sound may have ended before the pictures.
      if (pictures && shown - g.shown > 1'000'000'000) waits_[1] = false;
    }
  }
  if (found_ && !waits_[0] && !waits_[1]) next_cue();
}

MILLRACE_INLINE void matroska_file::finish(std::uint64_t object_size) {
  if (done_ && groups_.empty()) refuse("none of its Cues names a key frame of the track of pictures", cues_at_);
  if (!done_ || (end_ > object_size && end_ != UINT64_MAX) || groups_.back().lead > object_size) {
    damaged("the object ends in the middle of the segment: it is cut", std::min(wanted_, object_size));
  }
  end_ = std::min(end_, object_size);
}

MILLRACE_INLINE std::uint64_t matroska_file::groups_end() const noexcept {
  const group& last = groups_.back();
  return std::max(last.lead, cues_at_ > last.begin ? cues_at_ : end_);
}

MILLRACE_INLINE std::string matroska_file::init() const {
  std::string scale;
  append_be(scale, scale_, 8);
  std::string facts;
  ebml::put(facts, ebml::timestamp_scale, scale);
  ebml::put(facts, 0x4d80, "millrace");  // MuxingApp
  ebml::put(facts, 0x5741, "millrace");  // WritingApp
  std::string out = header_;
  append_be(out, ebml::segment, 4);
  append_be(out, UINT8_MAX, 1);  // it goes on to the end
  ebml::put(out, ebml::info, facts);
  ebml::put(out, ebml::tracks, tracks_[0].entry + tracks_[1].entry);
  return out;
}

MILLRACE_INLINE std::size_t matroska_file::fit(char* file, std::size_t init, std::size_t content, std::uint64_t cluster,
                                               const std::uint64_t (&tracks)[2], const where& begin) {
  std::string head;
  append_be(head, ebml::cluster, 4);
  append_be(head, 0, 8);
  append_be(head, ebml::timestamp << 8 | 0x88, 2);
  append_be(head, cluster, 8);
  std::memcpy(file + init, head.data(), room);
  char* size_at = file + init + 4;  // of the cluster that is written
  std::size_t size_bytes = 8;
  char* to = file + init + room;
  const auto close = [&] {
    std::string text;
    const std::uint64_t size = static_cast<std::uint64_t>(to - size_at) - size_bytes;
    append_be(text, size | std::uint64_t{1} << (7 * size_bytes), static_cast<int>(size_bytes));
    std::memcpy(size_at, text.data(), size_bytes);
  };
  std::string_view rest(to, content);
  ebml_element e;
  const auto fail = [&] {
    throw archive_error("the clusters are damaged: no element of Matroska begins here, or it is cut",
                        where{begin.object, begin.offset.value_or(0) + content - rest.size(), {}});
  };
  while (!rest.empty()) {
    if (!ebml::element_of(rest, e)) fail();
    std::size_t bytes = e.head;
    bool kept = e.id == ebml::cluster || e.id == ebml::timestamp;
    if (e.id != ebml::cluster) {
      if (e.size > rest.size() - e.head) fail();
      bytes += e.body.size();
      std::string_view its = e.id == ebml::simple_block ? e.body : std::string_view();
      std::string_view group = e.id == ebml::block_group ? e.body : std::string_view();
      ebml_element in_group;
      for (; !group.empty(); group.remove_prefix(in_group.head + in_group.body.size())) {
        if (!ebml::element_of(group, in_group) || in_group.size > group.size() - in_group.head) fail();
        if (in_group.id == ebml::block) its = in_group.body;
      }
      std::uint64_t track = 0;
      std::int64_t time = 0;
      bool key = false;
      if (ebml::block_of(its, track, time, key)) kept = track != 0 && (track == tracks[0] || track == tracks[1]);
    } else {
      close();
      size_at = to + 4;
      size_bytes = e.size == UINT64_MAX ? 0 : e.head - 4;  // one without a size stays so
    }
    if (kept) {
      std::memmove(to, rest.data(), bytes);
      to += bytes;
    }
    rest.remove_prefix(bytes);
  }
  close();
  return static_cast<std::size_t>(to - file);
}

}  // namespace millrace::inline MILLRACE_ABI::detail
